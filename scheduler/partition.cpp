#include "scheduler/partition.h"

#include <algorithm>

namespace spillway {
namespace {

/// Cuts greedily: shards of at most `most_weights` whose needs leave `reserve` of the budget.
class Cutter {
 public:
  Cutter(const ModelSpec& model, const Profile& profile, const JobShape& shape, Bytes budget)
      : model_(model), profile_(profile), shape_(shape), budget_(budget) {}

  int num_layers() const { return static_cast<int>(model_.layers.size()); }
  Bytes need(LayerRange range) const { return unit_need(model_, profile_, shape_, range).total(); }
  Bytes weights(LayerRange range) const { return weights_bytes(model_, range); }

  std::optional<std::vector<LayerRange>> cut(Bytes reserve, Bytes most_weights) const {
    std::vector<LayerRange> shards;
    for (int begin = 0; begin < num_layers();) {
      int end = begin;
      while (end < num_layers() && need({begin, end + 1}) + reserve <= budget_ &&
             weights({begin, end + 1}) <= most_weights) {
        ++end;
      }
      if (end == begin) return std::nullopt;
      shards.push_back({begin, end});
      begin = end;
    }
    return shards;
  }

  /// The fewest shards such that next to any of them another one's weights have room.
  std::optional<std::vector<LayerRange>> cut_with_prefetch() const {
    std::optional<std::vector<LayerRange>> best;
    for (int length = 1; length <= num_layers(); ++length) {
      Bytes most_weights = 0;
      for (int begin = 0; begin + length <= num_layers(); ++begin) {
        most_weights = std::max(most_weights, weights({begin, begin + length}));
      }
      if (most_weights >= budget_) break;
      auto shards = cut(most_weights, most_weights);
      if (shards && (!best || shards->size() < best->size())) best = std::move(shards);
    }
    return best;
  }

 private:
  const ModelSpec& model_;
  const Profile& profile_;
  const JobShape& shape_;
  Bytes budget_;
};

}  // namespace

Partition partition(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                    Bytes budget, OrderChoice order, bool double_buffer) {
  const Cutter cutter(model, profile, shape, budget);
  const LayerRange whole{0, cutter.num_layers()};
  const Bytes resident = round_up(cutter.need(whole), kPage);
  Partition result;
  if (order == OrderChoice::vn_major || (order == OrderChoice::automatic && resident <= budget)) {
    result.vn_major = true;
    result.smallest_budget = resident;
    result.fits = resident <= budget;
    if (result.fits) result.shards = {whole};
    if (order == OrderChoice::vn_major) return result;
  }
  Bytes smallest = 0;
  for (int l = 0; l < cutter.num_layers(); ++l) {
    smallest = std::max(smallest, cutter.need({l, l + 1}));
  }
  result.smallest_budget = round_up(smallest, kPage);
  if (result.fits) return result;
  std::optional<std::vector<LayerRange>> shards;
  if (double_buffer) shards = cutter.cut_with_prefetch();
  if (!shards) shards = cutter.cut(0, budget);
  result.fits = shards.has_value();
  if (shards) result.shards = std::move(*shards);
  return result;
}

}  // namespace spillway
