#pragma once

#include <optional>
#include <vector>

#include "scheduler/plan/lower.h"
#include "scheduler/plan/need.h"
#include "spillway/choices.h"

namespace spillway {

/// The cut of a model, or the budget that a cut would need.
struct Partition {
  bool fits = false;
  std::vector<LayerRange> shards;  ///< empty if it does not fit
  bool vn_major = false;
  Bytes smallest_budget = 0;  ///< the smallest budget that fits, a multiple of kPage
  /// The smallest budget that holds the next unit's weights beside any unit; 0: not computed.
  Bytes load_ahead_budget = 0;
};

/// Cuts a model so that every unit fits a device of `budget` bytes: weights, gradient sums,
/// boundaries and activations at once. With `double_buffer`, the weights of the next unit fit too,
/// if any cut allows that (so a budget that just allows it may give more shards than a smaller
/// one). The fewest shards win, found exactly by dynamic programming over the ends of shards.
/// `automatic` takes VN-major if the whole model fits. Pure. Source: Hydra's partitioning, but it
/// counts room for the prefetched shard instead of a fixed share of memory, and finds the fewest
/// shards instead of a greedy cut.
Partition partition(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                    Bytes budget, OrderChoice order, bool double_buffer);

/// What shards that stay on a device together need there, with the graphs and boundaries of all
/// virtual nodes of a lane; an upper bound.
UnitNeed need_together(const NeedTable& needs, const JobShape& shape,
                       const std::vector<LayerRange>& shards);

/// The shards of a model that fits a device whole and that several hosts train. All virtual nodes
/// go through one shard after the other, and shards stay on the device, with their graphs. So hosts
/// exchange the gradient sums of a shard while those before it still compute.
/// `exchange_s`: of all sums, with nothing else to do. `budget`: of a device, in bytes. One shard,
/// if fewer than four would be best, if a layer keeps no graph, or if half of the budget is too
/// small; the other half is for other trials. Source: the buckets of DistributedDataParallel
/// ("PyTorch Distributed", Li et al., 2020).
std::vector<LayerRange> shards_for_exchange(const NeedTable& needs, const JobShape& shape,
                                            Bytes budget, double exchange_s);

}  // namespace spillway
