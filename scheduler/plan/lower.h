#pragma once

#include <vector>

#include "core/device/memory_split.h"
#include "scheduler/plan/program.h"

namespace spillway {

/// The shape of a step on one host, independent of devices except for `lane_groups` and `split`.
struct JobShape {
  int virtual_nodes = 1;
  int groups = 1;                   ///< divides virtual_nodes
  std::vector<int> lane_groups{1};  ///< groups of each lane; in all, those of this host
  int eval_virtual_nodes = 0;       ///< 0: no evaluation
  std::int64_t first_step = 0;      ///< committed before: its updates are done
  std::int64_t max_steps = 1;
  std::int64_t eval_steps = 0;  ///< steps between evaluations; 0: only after the last step
  int moments = 2;              ///< values that the optimizer keeps for each weight
  MemorySplit split;            ///< of the devices
  /// If several hosts train the job together: the groups of each of them, `groups` in all. One with
  /// none takes no part.
  std::vector<int> host_groups;
  int host = 0;               ///< the number of this one, which takes part
  bool shards_state = false;  ///< each of several hosts has only the moments of what it updates
  /// Another host makes the same updates of each host's part, so it has the moments of it, too.
  bool shadows_state = false;

  /// Whether the host has groups.
  bool takes_part(int of_host) const { return host_groups[at(of_host)] > 0; }
  /// Whether other hosts take part.
  bool has_peers() const { return !host_groups.empty() && host_groups[at(host)] < groups; }
  /// The first virtual node of a group.
  int first_vn(int group) const { return group * (virtual_nodes / groups); }
  /// The same for evaluation, whose virtual nodes are divided like the groups.
  int first_eval_vn(int group) const {
    return static_cast<int>(std::int64_t{eval_virtual_nodes} * group / groups);
  }
  bool is_sharded() const { return shards_state && has_peers(); }
  bool is_shadowed() const { return shadows_state && is_sharded(); }
  GroupRange groups_of(int of_host) const;
  GroupRange own_groups() const { return groups_of(host); }
  /// The first groups of the finished subtrees of a host's groups, ascending.
  std::vector<int> subtrees_of(int of_host) const;
};

/// Groups of each lane, as even as possible: sizes differ by at most one, larger ones first.
std::vector<int> split_groups(int groups, int lanes);
/// Lanes take consecutive groups of this host.
std::vector<GroupRange> lane_ranges(const JobShape& shape);

/// Writes a job as step programs.
///
/// A unit takes Strategy::chunk virtual nodes of a cell through a stage: forward and backward in
/// one unit for the last stage, which nothing recomputes; one of each for the others. The order of
/// the units of a track is planned from their costs.
JobPlan lower(const ModelSpec& model, const Profile& profile, const JobShape& shape,
              Strategy strategy);

/// The same with the program of a step that follows another (kStepAfterStep) alone, for simulation.
JobPlan lower_step(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                   Strategy strategy);

/// The same for shards that cover the model's layers in order, on the lanes of `shape`.
///
/// Shard-major: forward units shard by shard, then backward units in reverse; every unit takes all
/// virtual nodes of its lane through one shard, so a shard's weights are loaded at most twice.
/// VN-major: one backward unit over all layers, nothing recomputed.
JobPlan lower(const ModelSpec& model, const Profile& profile, const JobShape& shape,
              const std::vector<LayerRange>& shards, bool vn_major);

}  // namespace spillway
