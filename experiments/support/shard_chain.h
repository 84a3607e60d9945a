#pragma once

#include <memory>
#include <vector>

#include "scheduler/plan/lower.h"
#include "spillway/ids.h"
#include "tests/support/models/small_model.h"

/// Jobs for the virtual shell: chains of shards with given times.
namespace spillway::experiments {

inline constexpr std::int64_t kShardElements = 1 << 20;
inline constexpr Bytes kShardBytes = kShardElements * 4;

/// Seconds of one virtual node through one shard. Backward includes running forward again.
struct ShardTime {
  double forward_s = 1, backward_s = 1;
};

/// A job whose layers are one shard each, of `elements` weights. A step has 2 * shards - 1 units
/// per lane, because the last shard goes forward and backward in one. Boundaries are 256 bytes;
/// host operations take no time.
inline std::shared_ptr<const JobPlan> chain_job(const std::vector<ShardTime>& shards,
                                                const JobShape& shape,
                                                std::int64_t elements = kShardElements) {
  const int num_shards = static_cast<int>(shards.size());
  const ModelSpec model = testing::chain(num_shards, elements);
  Profile profile = testing::profile_of(model);
  profile.update_bytes_per_s = profile.reduce_bytes_per_s = 1e300;
  profile.load_s = 0;
  std::vector<LayerRange> ranges;
  for (int s = 0; s < num_shards; ++s) {
    profile.layers[at(s)].forward_s = shards[at(s)].forward_s;
    profile.layers[at(s)].backward_s = shards[at(s)].backward_s;
    ranges.push_back({s, s + 1});
  }
  return std::make_shared<JobPlan>(lower(model, profile, shape, ranges, /*vn_major=*/false));
}

/// On one lane.
inline std::shared_ptr<const JobPlan> chain_job(const std::vector<ShardTime>& shards,
                                                std::int64_t max_steps, int virtual_nodes = 1) {
  return chain_job(shards, {.virtual_nodes = virtual_nodes, .max_steps = max_steps});
}

inline double compute_s(const JobPlan& plan) {
  return plan.step_s * static_cast<double>(plan.max_steps);
}

}  // namespace spillway::experiments
