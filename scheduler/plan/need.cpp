#include "scheduler/plan/need.h"

#include <algorithm>
#include <set>
#include <utility>

#include "scheduler/plan/layout.h"
#include "scheduler/plan/lower.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

Bytes sum_of(const std::vector<int>& edges, const std::vector<Bytes>& bytes) {
  Bytes sum = 0;
  for (int e : edges) sum += bytes[at(e)];
  return sum;
}

}  // namespace

int sum_slots(const JobShape& shape, const Strategy& strategy) {
  std::set<std::pair<int, int>> ranges;
  for (const Stage& stage : strategy.stages) {
    for (const Cell& cell : stage.cells) ranges.emplace(cell.groups.begin, cell.groups.end);
  }
  int slots = 0;
  for (const auto& [begin, end] : ranges) {
    slots = std::max(slots, plan_fold({begin, end}, shape.groups, 1).num_slots);
  }
  return slots;
}

bool has_backward(const ModelSpec& model, const LayerSpec& layer) {
  const auto has_sum = [&](int p) { return model.params[at(p)].has_sum(); };
  const auto has_gradient_of = [&](int e) { return has_gradient(model.edges[at(e)]); };
  return layer.outputs.empty() || std::ranges::any_of(layer.params, has_sum) ||
         std::ranges::any_of(layer.inputs, has_gradient_of) ||
         std::ranges::any_of(layer.outputs, has_gradient_of);
}

NeedTable::NeedTable(const ModelSpec& spec, const Profile& costs, const JobShape& shape)
    : NeedTable(spec, costs, shape, data_parallel({{}}, lane_ranges(shape))) {}

NeedTable::NeedTable(const ModelSpec& spec, const Profile& costs, const JobShape& shape,
                     const Strategy& strategy)
    : NeedTable(spec, costs, shape.split, sum_slots(shape, strategy)) {}

NeedTable::NeedTable(const ModelSpec& spec, const Profile& costs, const MemorySplit& memory,
                     int slots)
    : model(spec), profile(costs), split(memory), readers(readers_of(spec)), most_slots(slots) {
  for (const EdgeSpec& edge : model.edges) {
    edge_bytes.push_back(round_up(edge.tensor.bytes(), kAlignment));
  }
  const std::vector<int> uses = uses_of(model);
  tied_bytes.resize(model.params.size());
  for (const LayerSpec& layer : model.layers) {
    own_weights.push_back(0);
    tied_params.emplace_back();
    has_backward.push_back(spillway::has_backward(model, layer));
    const SumPlaces places = sum_places(model, layer);
    sums.push_back(places.bytes);
    packed_sums.push_back(places.packed_bytes);
    for (int p : layer.params) {
      const ParamSpec& param = model.params[at(p)];
      const Bytes bytes = round_up(param.tensor.bytes(), kAlignment);
      if (uses[at(p)] > 1) {
        tied_bytes[at(p)] = bytes;
        tied_params.back().push_back(p);
      } else {
        own_weights.back() += bytes;
      }
    }
  }
}

void RangeNeed::grow() {
  weights_ += table_.own_weights[at(end_)];
  sums_ += table_.sums[at(end_)];
  has_backward_ = has_backward_ || table_.has_backward[at(end_)];
  keeps_graph_ = keeps_graph_ && table_.model.layers[at(end_)].keeps_graph;
  for (int p : table_.tied_params[at(end_)]) {
    if (std::ranges::count(tied_, p) > 0) continue;
    tied_.push_back(p);
    weights_ += table_.tied_bytes[at(p)];
  }
  grow_workspaces();
  grow_boundaries();
  ++end_;
}

bool RangeNeed::has_gradient_of(int edge) const {
  return has_gradient(table_.model.edges[at(edge)]);
}

/// What a sum over pieces holds at most while terms come: a subtree of each level, one more to add.
/// 0 for an edge that is not summed.
Bytes RangeNeed::folding_bytes(int leaves, int edge) const {
  Bytes tensors = 0;
  for (int size = 1; size < leaves; size *= 2) ++tensors;
  return tensors == 0 ? 0 : (tensors + 1) * table_.edge_bytes[at(edge)];
}

/// `out_`: edges read by this or later layers.
void RangeNeed::grow_workspaces() {
  const LayerProfile& costs = table_.profile.layers[at(end_)];
  const LayerSpec& layer = table_.model.layers[at(end_)];
  for (const auto* edges : {&layer.inputs, &layer.outputs}) {
    for (int e : *edges) {
      if (std::ranges::count(out_, e) > 0) continue;
      folding_ += folding_bytes(table_.model.edges[at(e)].makers, e);
    }
  }
  forward_peak_ =
      std::max(forward_peak_, sum_of(out_, table_.edge_bytes) + folding_ + costs.forward_peak);
  Bytes gradients = 0;  // live edges and gradients not counted in the layer's profile
  const auto goes_on = [&](int e) {
    return has_gradient_of(e) && table_.readers[at(e)].last > end_;
  };
  const auto gradient_bytes = [&](int e) {
    const int pieces = table_.model.edges[at(e)].reading_pieces;
    return table_.edge_bytes[at(e)] + folding_bytes(pieces, e);
  };
  for (int e : out_) gradients += goes_on(e) ? gradient_bytes(e) : 0;
  for (int e : layer.inputs) {
    if (table_.model.edges[at(e)].producer < begin_) continue;  // in standing_in_
    gradients += goes_on(e) ? gradient_bytes(e) : 0;
  }
  graph_peak_ = std::max(graph_peak_, retained_ + folding_ + costs.graph_peak);
  for (int e : layer.inputs) {
    const int makers = table_.model.edges[at(e)].makers;
    folding_ -= folding_bytes(makers, e);
    if (makers > 1) retained_ += table_.edge_bytes[at(e)];  // the sum
  }
  backward_peak_ =
      std::max({backward_peak_, graph_peak_, retained_ + gradients + costs.backward_peak});
  retained_ += costs.graph_retained;
}

void RangeNeed::grow_boundaries() {
  const LayerSpec& layer = table_.model.layers[at(end_)];
  for (int e : layer.inputs) {
    const int producer = table_.model.edges[at(e)].producer;
    if (producer < 0) batch_bytes_ = table_.edge_bytes[at(e)];
    if (producer < 0 || producer >= begin_ || std::ranges::count(in_, e) > 0) continue;
    in_.push_back(e);
    const bool goes_on = has_gradient_of(e) && table_.readers[at(e)].last > end_;
    if (goes_on) standing_in_ += 2 * table_.edge_bytes[at(e)];
    if (goes_on) standing_in_ += folding_bytes(table_.model.edges[at(e)].reading_pieces, e);
  }
  std::erase_if(out_, [&](int e) { return table_.readers[at(e)].last <= end_; });
  for (int e : layer.outputs) {
    if (std::ranges::count(out_, e) == 0) out_.push_back(e);
  }
}

/// Pieces before the range may all be shards of their own.
Bytes RangeNeed::area_of_in(int edge) const {
  const EdgeSpec& spec = table_.model.edges[at(edge)];
  const int makers = std::min(begin_ - spec.producer, spec.makers);
  return table_.edge_bytes[at(edge)] * static_cast<Bytes>(makers);
}

Bytes RangeNeed::area_of_out(int edge) const {
  return table_.edge_bytes[at(edge)] *
         parts_made(table_.model.edges[at(edge)], {begin_, end_}).size();
}

Bytes RangeNeed::area_of_in_gradient(int edge) const {
  if (!has_gradient_of(edge)) return 0;
  const EdgeSpec& spec = table_.model.edges[at(edge)];
  const Readers readers = table_.readers[at(edge)];
  const Bytes made = gradient_parts(spec, readers, {begin_, end_}).size();
  const bool from_behind = spec.reading_pieces == 1 && readers.last >= end_;
  return table_.edge_bytes[at(edge)] * (made + (from_behind ? 1 : 0));
}

/// Pieces behind the range may all be shards of their own.
int RangeNeed::parts_of_out_gradient(int edge) const {
  if (!has_gradient_of(edge)) return 0;
  const int behind = table_.readers[at(edge)].last + 1 - end_;
  return std::min(behind, table_.model.edges[at(edge)].reading_pieces);
}

UnitNeed RangeNeed::forward() const {
  Bytes area = batch_bytes_;
  for (int e : in_) area += area_of_in(e);
  for (int e : out_) area += area_of_out(e);
  return {weights_, 0, forward_peak_, area};
}

UnitNeed RangeNeed::backward() const {
  if (!has_backward()) return forward();
  Bytes area = batch_bytes_, adding = 0, added = 0;
  for (int e : in_) area += area_of_in(e) + area_of_in_gradient(e);
  for (int e : out_) {
    const int parts = parts_of_out_gradient(e);
    area += table_.edge_bytes[at(e)] * static_cast<Bytes>(parts);
    if (parts < 2) continue;  // read where it lies
    adding += folding_bytes(table_.model.edges[at(e)].reading_pieces, e);
    added += table_.edge_bytes[at(e)];
  }
  // Gradients from behind are added between the last layer's forward and its backward.
  const Bytes workspace = std::max(backward_peak_ + added, retained_ + adding) + standing_in_;
  return {weights_, sums_ * static_cast<Bytes>(table_.most_slots), workspace, area};
}

Bytes RangeNeed::graph() const {
  if (!keeps_graph_ || !has_backward()) return 0;
  return std::max(retained_, graph_peak_ - std::min(graph_peak_, forward_peak_));
}

Bytes RangeNeed::least_of_longer() const {
  return table_.split.needed(weights_ + sums_ * static_cast<Bytes>(table_.most_slots),
                             has_backward() ? backward_peak_ : forward_peak_);
}

UnitNeed RangeNeed::largest() const {
  const UnitNeed a = forward(), b = backward();
  return a.total(table_.split) > b.total(table_.split) ? a : b;
}

RangeNeed range_need(const NeedTable& table, LayerRange layers) {
  RangeNeed need(table, layers.begin);
  for (int l = layers.begin; l < layers.end; ++l) need.grow();
  return need;
}

UnitNeed unit_need(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                   LayerRange layers) {
  return range_need(NeedTable(model, profile, shape), layers).largest();
}

}  // namespace spillway
