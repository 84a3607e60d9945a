#include "scheduler/partition.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/ids.h"
#include "scheduler/need.h"

namespace spillway {
namespace {

/// Needs and weights of every range of layers. A longer range may need less than a shorter one: a
/// boundary inside it is no input or output any more.
class Ranges {
 public:
  explicit Ranges(const NeedTable& table)
      : num_layers_(static_cast<int>(table.model.layers.size())), split_(table.split) {
    for (int begin = 0; begin < num_layers_; ++begin) {
      RangeNeed range(table, begin);
      for (int end = begin + 1; end <= num_layers_; ++end) {
        range.grow();
        add(range.forward(), range.backward());
        weights_.push_back(range.weights());
      }
    }
  }
  int num_layers() const { return num_layers_; }
  /// Memory for the range, with `beside` bytes more of planned ranges.
  Bytes need(int begin, int end, Bytes beside = 0) const {
    const Need& of_range = needs_[position(begin, end)];
    return split_.needed(of_range.planned + beside, of_range.activations);
  }
  Bytes weights(int begin, int end) const { return weights_[position(begin, end)]; }

 private:
  struct Need {
    Bytes planned = 0, activations = 0;
  };
  /// Where activations lie apart, each part is as large as one of the two needs.
  void add(const UnitNeed& forward, const UnitNeed& backward) {
    if (split_.apart()) {
      needs_.push_back({std::max(forward.planned(), backward.planned()),
                        std::max(forward.workspace, backward.workspace)});
    } else {
      needs_.push_back({std::max(forward.total(), backward.total()), 0});
    }
  }
  std::size_t position(int begin, int end) const {
    return at(begin * num_layers_ - begin * (begin - 1) / 2 + end - begin - 1);
  }
  int num_layers_;
  const MemorySplit split_;
  std::vector<Need> needs_;
  std::vector<Bytes> weights_;
};

constexpr Bytes kNever = std::numeric_limits<Bytes>::max();

/// The smallest largest need, with `beside` bytes more, over all cuts into shards of at most
/// `most_weights`.
Bytes smallest_need(const Ranges& ranges, Bytes most_weights, Bytes beside = 0) {
  std::vector<Bytes> least{0};  // by end: of the layers before it
  for (int end = 1; end <= ranges.num_layers(); ++end) {
    Bytes best = kNever;
    for (int begin = 0; begin < end; ++begin) {
      if (ranges.weights(begin, end) > most_weights) continue;
      best = std::min(best, std::max(least[at(begin)], ranges.need(begin, end, beside)));
    }
    least.push_back(best);
  }
  return least.back();
}

/// The fewest shards of at most `most_weights` whose needs leave `reserve` of the budget; early
/// shards as long as can be.
std::optional<std::vector<LayerRange>> cut(const Ranges& ranges, Bytes budget, Bytes reserve,
                                           Bytes most_weights) {
  const int num_layers = ranges.num_layers();
  constexpr int kNone = std::numeric_limits<int>::max();
  std::vector<int> fewest(at(num_layers + 1), kNone), next(at(num_layers + 1));
  fewest.back() = 0;
  for (int begin = num_layers - 1; begin >= 0; --begin) {
    for (int end = begin + 1; end <= num_layers; ++end) {
      const bool fits =
          ranges.need(begin, end, reserve) <= budget && ranges.weights(begin, end) <= most_weights;
      if (!fits || fewest[at(end)] == kNone || fewest[at(end)] + 1 > fewest[at(begin)]) continue;
      fewest[at(begin)] = fewest[at(end)] + 1;
      next[at(begin)] = end;
    }
  }
  if (fewest.front() == kNone) return std::nullopt;
  std::vector<LayerRange> shards;
  for (int begin = 0; begin < num_layers; begin = next[at(begin)]) {
    shards.push_back({begin, next[at(begin)]});
  }
  return shards;
}

/// By length: the most weights of any shard that is as long. Cuts are tried with these as limits.
std::vector<Bytes> weight_limits(const Ranges& ranges) {
  std::vector<Bytes> limits;
  for (int length = 1; length <= ranges.num_layers(); ++length) {
    limits.push_back(0);
    for (int begin = 0; begin + length <= ranges.num_layers(); ++begin) {
      limits.back() = std::max(limits.back(), ranges.weights(begin, begin + length));
    }
  }
  return limits;
}

/// The fewest shards such that next to any of them another one's weights have room.
std::optional<std::vector<LayerRange>> cut_with_prefetch(const Ranges& ranges, Bytes budget) {
  std::optional<std::vector<LayerRange>> best;
  for (Bytes limit : weight_limits(ranges)) {
    if (limit >= budget) break;
    auto shards = cut(ranges, budget, limit, limit);
    if (shards && (!best || shards->size() < best->size())) best = std::move(shards);
  }
  return best;
}

/// The least budget under which cut_with_prefetch() finds a cut.
Bytes load_ahead_budget(const Ranges& ranges) {
  Bytes least = kNever;
  for (Bytes limit : weight_limits(ranges)) {
    least = std::min(least, smallest_need(ranges, limit, limit));
  }
  return round_up(least, kPage);
}

}  // namespace

Partition partition(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                    Bytes budget, OrderChoice order, bool double_buffer) {
  const Ranges ranges(NeedTable(model, profile, shape));
  const LayerRange whole{0, ranges.num_layers()};
  const Bytes resident = round_up(ranges.need(whole.begin, whole.end), kPage);
  Partition result;
  if (order == OrderChoice::vn_major || (order == OrderChoice::automatic && resident <= budget)) {
    result.vn_major = true;
    result.smallest_budget = resident;
    result.fits = resident <= budget;
    if (result.fits) result.shards = {whole};
    if (order == OrderChoice::vn_major) return result;
  }
  result.smallest_budget = round_up(smallest_need(ranges, kNever), kPage);
  if (double_buffer) result.load_ahead_budget = load_ahead_budget(ranges);
  if (result.fits) return result;
  std::optional<std::vector<LayerRange>> shards;
  if (double_buffer) shards = cut_with_prefetch(ranges, budget);
  if (!shards) shards = cut(ranges, budget, 0, budget);
  result.fits = shards.has_value();
  if (shards) result.shards = std::move(*shards);
  return result;
}

}  // namespace spillway
