#include "scheduler/search/stage_facts.h"

#include <algorithm>
#include <set>

#include "scheduler/plan/placement.h"

namespace spillway {
namespace {

Strategy one_stage(LayerRange layers, const JobShape& shape) {
  return data_parallel({layers}, {{0, shape.groups}});
}

StageFacts facts_of(const NeedTable& needs, const Layout& layout, LayerRange layers) {
  const RangeNeed need = range_need(needs, layers);
  StageFacts facts{.reads_batch = need.reads_batch(),
                   .has_backward = need.has_backward(),
                   .needed_budget = need.largest().total(needs.split),
                   .forward_workspace = need.forward().workspace,
                   .backward_workspace = need.backward().workspace,
                   .graph = round_up(need.graph(), kAlignment)};
  std::set<int> weights;
  for (int l = layers.begin; l < layers.end; ++l) {
    const LayerProfile& costs = needs.profile.layers[at(l)];
    facts.forward_s += costs.forward_s;
    facts.backward_s += costs.backward_s;
    facts.merge_s += costs.merge_s;
    const Layout::LayerPlace& place = layout.layers[at(l)];
    facts.sums += round_up(place.sum.bytes, kAlignment);
    facts.packed_sums += place.sum.packed_bytes;
    weights.insert(place.weights_buffers.begin(), place.weights_buffers.end());
  }
  facts.weights.assign(weights.begin(), weights.end());
  return facts;
}

}  // namespace

StageTable::StageTable(const ModelSpec& model, const Profile& profile, const JobShape& shape)
    : model_(model),
      profile_(profile),
      shape_(shape),
      whole_(lower_step(model, profile, shape,
                        one_stage({0, static_cast<int>(model.layers.size())}, shape))) {
  tied_params_ = needs(1).tied_params;
}

const NeedTable& StageTable::needs(int slots) {
  const auto found = needs_.find(slots);
  if (found != needs_.end()) return found->second;
  return needs_.try_emplace(slots, model_, profile_, shape_.split, slots).first->second;
}

const StageFacts& StageTable::facts(LayerRange layers, int slots) {
  const auto [place, is_new] = facts_.try_emplace({slots, layers.begin, layers.end});
  if (is_new) place->second = facts_of(needs(slots), whole_.layout, layers);
  return place->second;
}

const std::vector<LayerRange>& StageTable::divided(LayerRange stage, int slots, Bytes budget) {
  const auto [place, is_new] = parts_.try_emplace({budget, slots, stage.begin, stage.end});
  if (is_new) {
    Strategy strategy = one_stage(stage, shape_);
    divide_to_fit(strategy, needs(slots), budget);
    place->second = layers_of(strategy);
  }
  return place->second;
}

Bytes StageTable::smallest_budget(int slots) {
  const auto [place, is_new] = smallest_.try_emplace(slots);
  if (is_new) place->second = spillway::smallest_budget(needs(slots));
  return place->second;
}

const FoldPlan& StageTable::fold(GroupRange cell) {
  const auto [place, is_new] = folds_.try_emplace({cell.begin, cell.end});
  if (is_new) {
    place->second = plan_fold(cell, shape_.groups, shape_.virtual_nodes / shape_.groups);
  }
  return place->second;
}

const std::vector<HostOpSpec>& StageTable::reduces(std::size_t cells, std::size_t partials) {
  const auto [place, is_new] = reduces_.try_emplace({cells == 1, partials});
  if (!is_new) return place->second;
  for (int l = 0; l < static_cast<int>(model_.layers.size()); ++l) {
    Layout::LayerPlace layer = whole_.layout.layers[at(l)];
    if (cells > 1) layer.device_norms.clear();
    place->second.push_back(reduce_of(model_, profile_, l, layer, partials - 1));
  }
  return place->second;
}

}  // namespace spillway
