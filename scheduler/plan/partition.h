#pragma once

#include <optional>
#include <vector>

#include "scheduler/plan/lower.h"
#include "spillway/choices.h"

namespace spillway {

/// How a model is cut, or the budget that a cut would need.
struct Partition {
  bool fits = false;
  std::vector<LayerRange> shards;  ///< empty if it does not fit
  bool vn_major = false;
  Bytes smallest_budget = 0;  ///< the least budget that fits, a multiple of kPage
  /// The least budget that holds the next unit's weights beside any unit; 0: not computed.
  Bytes load_ahead_budget = 0;
};

/// Cuts a model so that every unit fits a device of `budget` bytes: weights, gradient sums,
/// boundaries and activations at once. With `double_buffer`, also the weights of the unit that
/// follows, if any cut allows that (so a budget that just allows it may give more shards than a
/// smaller one); the fewest shards win, found exactly by dynamic programming
/// over the ends of shards. `automatic` takes VN-major where the whole model fits. Pure. Source:
/// Hydra's partitioning, with room for the prefetched shard counted instead of a fixed share of
/// memory, and the fewest shards instead of a greedy walk.
Partition partition(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                    Bytes budget, OrderChoice order, bool double_buffer);

}  // namespace spillway
