#include "scheduler/plan/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr Bytes kNever = std::numeric_limits<Bytes>::max();

/// A range of layers in the search.
struct Need {
  Bytes planned = 0, activations = 0;
  Bytes weights = 0;  ///< of planned
};

/// With a dedicated activation pool, each part is as large as one of the two needs.
Need need_of(const RangeNeed& range, const MemorySplit& split) {
  const UnitNeed forward = range.forward(), backward = range.backward();
  if (!split.dedicated_activations()) {
    return {std::max(forward.total(), backward.total()), 0, range.weights()};
  }
  return {std::max(forward.planned(), backward.planned()),
          std::max(forward.workspace, backward.workspace), range.weights()};
}

/// Memory that a range needs next to `beside` other planned bytes.
Bytes memory_for(const Need& need, const MemorySplit& split, Bytes beside = 0) {
  return split.needed(need.planned + beside, need.activations);
}

/// The largest weights of a shard, by its number of layers. These are tried as limits of a cut.
Bytes weight_limit(const NeedTable& table, std::size_t length) {
  std::map<int, int> uses;  // uses of tied parameters in the window
  Bytes weights = 0, most = 0;
  const auto add = [&](std::size_t layer) {
    weights += table.own_weights[layer];
    for (int p : table.tied_params[layer]) {
      if (uses[p]++ == 0) weights += table.tied_bytes[at(p)];
    }
  };
  const auto remove = [&](std::size_t layer) {
    weights -= table.own_weights[layer];
    for (int p : table.tied_params[layer]) {
      if (--uses[p] == 0) weights -= table.tied_bytes[at(p)];
    }
  };
  for (std::size_t end = 0; end < table.own_weights.size(); ++end) {
    add(end);
    if (end >= length) remove(end - length);
    most = std::max(most, weights);
  }
  return most;
}

/// The needs of all ranges of layers that a cut may use. A longer range may need less: an inner
/// boundary is neither input nor output. But weights, sums and activations only grow, so for each
/// first layer the search ends where they alone exceed the budget.
class Ranges {
 public:
  /// Ranges that need at most `memory`, or that the best of all cuts may contain. None goes across
  /// the layer `cut_before`.
  Ranges(const NeedTable& table, Bytes memory, int cut_before = 0)
      : num_layers_(static_cast<int>(table.model.layers.size())), split_(table.split) {
    const Bytes most = std::max(memory, most_alone(table));
    for (int begin = 0; begin < num_layers_; ++begin) {
      first_.push_back(needs_.size());
      const int last_end = begin < cut_before ? cut_before : num_layers_;
      RangeNeed range(table, begin);
      do {
        range.grow();
        needs_.push_back(need_of(range, split_));
      } while (range.end() < last_end && range.least_of_longer() <= most);
    }
    first_.push_back(needs_.size());
  }

  int num_layers() const { return num_layers_; }
  const MemorySplit& split() const { return split_; }
  /// The end of the longest range that begins there.
  int last_end(int begin) const {
    return begin + static_cast<int>(first_[at(begin + 1)] - first_[at(begin)]);
  }
  const Need& operator()(int begin, int end) const {
    return needs_[first_[at(begin)] + at(end - begin - 1)];
  }

 private:
  /// The largest need of a single layer: a range that needs more is never part of the best cut.
  /// With a dedicated activation pool, the need depends on the ranges beside it: at most the need
  /// of cutting everywhere.
  static Bytes most_alone(const NeedTable& table) {
    std::vector<Need> alone;
    for (int l = 0; l < static_cast<int>(table.model.layers.size()); ++l) {
      alone.push_back(need_of(range_need(table, {l, l + 1}), table.split));
    }
    const auto most = [&](Bytes beside) {
      Bytes memory = 0;
      for (const Need& need : alone) {
        memory = std::max(memory, memory_for(need, table.split, beside));
      }
      return memory;
    };
    if (!table.split.dedicated_activations()) return most(0);
    return most(most(std::ranges::max(alone, {}, &Need::weights).weights));
  }

  int num_layers_;
  const MemorySplit split_;
  std::vector<std::size_t> first_;  // by layer: its first range in needs_
  std::vector<Need> needs_;
};

/// The smallest largest `memory(need)` over all cuts into shards of at most `most_weights`.
template <typename Memory>
Bytes smallest(const Ranges& ranges, Bytes most_weights, const Memory& memory) {
  std::vector<Bytes> least(at(ranges.num_layers() + 1),
                           kNever);  // by end: for the layers before it
  least.front() = 0;
  for (int begin = 0; begin < ranges.num_layers(); ++begin) {
    for (int end = begin + 1; end <= ranges.last_end(begin); ++end) {
      const Need& need = ranges(begin, end);
      if (need.weights > most_weights) break;
      least[at(end)] = std::min(least[at(end)], std::max(least[at(begin)], memory(need)));
    }
  }
  return least.back();
}

Bytes smallest_need(const Ranges& ranges, Bytes most_weights, Bytes beside = 0) {
  return smallest(ranges, most_weights,
                  [&](const Need& need) { return memory_for(need, ranges.split(), beside); });
}

/// The fewest shards of at most `most_weights` whose needs leave `reserve` of the budget; early
/// shards are as long as possible.
std::optional<std::vector<LayerRange>> cut(const Ranges& ranges, Bytes budget, Bytes reserve,
                                           Bytes most_weights) {
  const int num_layers = ranges.num_layers();
  constexpr int kNone = std::numeric_limits<int>::max();
  std::vector<int> fewest(at(num_layers + 1), kNone), next(at(num_layers + 1));
  fewest.back() = 0;
  for (int begin = num_layers - 1; begin >= 0; --begin) {
    for (int end = begin + 1; end <= ranges.last_end(begin); ++end) {
      const Need& need = ranges(begin, end);
      if (need.weights > most_weights) break;
      if (memory_for(need, ranges.split(), reserve) > budget) continue;
      if (fewest[at(end)] == kNone || fewest[at(end)] + 1 > fewest[at(begin)]) continue;
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

/// A lower bound on the number of shards: all weights and sums must fit.
std::size_t fewest_possible(const NeedTable& table, Bytes budget, Bytes limit) {
  Bytes weights = 0, sums = 0;
  for (std::size_t l = 0; l < table.own_weights.size(); ++l) {
    weights += table.own_weights[l];
    sums += table.sums[l] * static_cast<Bytes>(table.most_slots);
  }
  const Bytes planned = table.split.planned(budget);
  if (planned <= limit) return std::numeric_limits<std::size_t>::max();
  const auto shards = [](Bytes bytes, Bytes room) { return (bytes + room - 1) / room; };
  return std::max({std::size_t{1}, shards(weights, std::max<Bytes>(limit, 1)),
                   shards(weights + sums, planned - limit)});
}

/// The fewest shards that leave room for the next shard's weights; ties go to the smallest limit.
/// The most promising limits are tried first.
std::optional<std::vector<LayerRange>> cut_with_prefetch(const NeedTable& table,
                                                         const Ranges& ranges, Bytes budget) {
  using Try = std::pair<std::size_t, Bytes>;  // shards, limit
  std::vector<Try> tries;
  for (std::size_t length = 1; length <= table.own_weights.size(); ++length) {
    const Bytes limit = weight_limit(table, length);
    if (limit >= budget) break;
    tries.emplace_back(fewest_possible(table, budget, limit), limit);
  }
  std::ranges::sort(tries);
  std::optional<std::vector<LayerRange>> best;
  Try found;
  for (const Try& promised : tries) {
    if (best && promised > found) break;
    const Bytes limit = promised.second;
    auto shards = cut(ranges, budget, limit, limit);
    if (!shards) continue;
    const Try now{shards->size(), limit};
    if (best && now > found) continue;
    best = std::move(shards);
    found = now;
  }
  return best;
}

/// The smallest budget for which cut_with_prefetch() finds a cut.
Bytes load_ahead_budget(const NeedTable& table, const Ranges& ranges) {
  const auto planned = [](const Need& need) { return need.planned; };
  const Bytes least_planned = smallest(ranges, kNever, planned);
  Bytes least = kNever;
  for (std::size_t length = 1; length <= table.own_weights.size(); ++length) {
    const Bytes limit = weight_limit(table, length);
    if (ranges.split().needed(least_planned + limit, 0) >= least) break;
    least = std::min(least, smallest_need(ranges, limit, limit));
  }
  return round_up(least, kPage);
}

/// The best cut: with room for the next shard's weights, or without.
std::optional<std::vector<LayerRange>> cut_of(const NeedTable& table, const Ranges& ranges,
                                              Bytes budget, bool with_prefetch) {
  if (with_prefetch) return cut_with_prefetch(table, ranges, budget);
  return cut(ranges, budget, 0, budget);
}

/// The weights that a step copies.
Bytes copied_bytes(const NeedTable& table, const std::vector<LayerRange>& shards) {
  Bytes bytes = 0;
  for (LayerRange shard : shards) {
    const RangeNeed need = range_need(table, shard);
    const bool comes_twice = need.has_backward() && shard != shards.back();
    bytes += (comes_twice ? 2 : 1) * need.weights();
  }
  return bytes;
}

/// Frozen layers at the beginning have no backward in shards of their own. Cuts behind them if that
/// saves copies.
void cut_behind_frozen(const NeedTable& table, Bytes budget, bool with_prefetch,
                       std::vector<LayerRange>& shards) {
  const auto first = std::ranges::find(table.has_backward, true);
  const auto trained = static_cast<int>(first - table.has_backward.begin());
  if (trained == 0 || std::ranges::count(shards, trained, &LayerRange::begin) > 0) return;
  auto apart = cut_of(table, Ranges(table, budget, trained), budget, with_prefetch);
  if (apart && copied_bytes(table, *apart) < copied_bytes(table, shards)) {
    shards = std::move(*apart);
  }
}

/// The most virtual nodes of a lane.
int most_virtual_nodes(const JobShape& shape) {
  return std::ranges::max(shape.lane_groups) * (shape.virtual_nodes / shape.groups);
}

/// Whether every shard but the last keeps the graphs of its forward.
bool keep_graphs(const NeedTable& needs, const std::vector<LayerRange>& shards) {
  if (needs.split.dedicated_activations()) return false;
  return std::all_of(shards.begin(), shards.end() - 1, [&](LayerRange shard) {
    const RangeNeed need = range_need(needs, shard);
    return !need.has_backward() || need.graph() > 0;
  });
}

}  // namespace

Partition partition(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                    Bytes budget, OrderChoice order, bool double_buffer) {
  const NeedTable table(model, profile, shape);
  const LayerRange whole{0, static_cast<int>(model.layers.size())};
  const Need whole_need = need_of(range_need(table, whole), table.split);
  const Bytes resident = round_up(memory_for(whole_need, table.split), kPage);
  Partition result;
  if (order == OrderChoice::vn_major || (order == OrderChoice::automatic && resident <= budget)) {
    result.vn_major = true;
    result.smallest_budget = resident;
    result.fits = resident <= budget;
    if (result.fits) result.shards = {whole};
    if (order == OrderChoice::vn_major) return result;
  }
  const Ranges ranges(table, result.fits ? 0 : budget);
  result.smallest_budget = round_up(smallest_need(ranges, kNever), kPage);
  if (double_buffer) result.load_ahead_budget = load_ahead_budget(table, ranges);
  if (result.fits) return result;
  bool with_prefetch = double_buffer;
  auto shards = cut_of(table, ranges, budget, with_prefetch);
  if (!shards && with_prefetch) shards = cut_of(table, ranges, budget, with_prefetch = false);
  result.fits = shards.has_value();
  if (!shards) return result;
  cut_behind_frozen(table, budget, with_prefetch, *shards);
  result.shards = std::move(*shards);
  return result;
}

UnitNeed need_together(const NeedTable& needs, const JobShape& shape,
                       const std::vector<LayerRange>& shards) {
  const auto virtual_nodes = static_cast<Bytes>(most_virtual_nodes(shape));
  UnitNeed all;
  Bytes graphs = 0;
  for (LayerRange shard : shards) {
    const RangeNeed range = range_need(needs, shard);
    const UnitNeed need = range.backward();
    all.weights += need.weights;
    all.sums += need.sums;
    all.workspace = std::max(all.workspace, need.workspace);
    all.op_area += virtual_nodes * need.op_area;
    if (shard != shards.back()) graphs += virtual_nodes * range.graph();
  }
  all.workspace += graphs;
  return all;
}

std::vector<LayerRange> shards_for_exchange(const NeedTable& needs, const JobShape& shape,
                                            Bytes budget, double exchange_s) {
  constexpr double kOpCost_s = 1e-4;  // about: its hand-over, and boundaries
  constexpr double kFewest = 4;       // with so many, a step is shorter by half of exchange_s
  std::vector<LayerRange> whole{{0, static_cast<int>(needs.model.layers.size())}};
  // n shards cost n * shard_s, and exchange_s / n that nothing hides.
  const double shard_s = 2 * most_virtual_nodes(shape) * kOpCost_s;
  const double best = std::sqrt(exchange_s / shard_s);
  if (best < kFewest) return whole;
  const auto& sums = needs.packed_sums;
  const auto all = static_cast<double>(std::accumulate(sums.begin(), sums.end(), Bytes{0}));
  const double enough = all / best;
  std::vector<LayerRange> shards{{0, 0}};
  double filled = 0;
  for (int l = 0; l < whole[0].end; ++l) {
    const auto bytes = static_cast<double>(sums[at(l)]);
    if (bytes > 0 && filled >= enough) {
      shards.push_back({l, l});
      filled = 0;
    }
    filled += bytes;
    shards.back().end = l + 1;
  }
  const bool have_room = need_together(needs, shape, shards).total() <= budget / 2;
  return have_room && keep_graphs(needs, shards) ? shards : whole;
}

}  // namespace spillway
