#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// What is known about a trial before it runs.
struct TrialPlan {
  int num_shards = 0;                     ///< pieces into which the model is cut
  std::string order;                      ///< shard_major | vn_major | strategy
  int lanes = 0;                          ///< devices that compute a step together
  std::vector<int> lane_groups;           ///< reduction groups of each of these devices
  std::vector<std::string> lane_devices;  ///< these devices; empty: any
  /// One sentence for each device that would slow a trial on several devices: why it is left out.
  std::vector<std::string> declined;
  Bytes home_bytes = 0;  ///< of host memory, of the trial alone
  /// Of host memory beside it: frozen parameters, which trials with equal `shared_content` share.
  Bytes shared_bytes = 0;
  std::string shared_content;       ///< a hash of these parameters; empty: there are none
  Bytes smallest_budget_bytes = 0;  ///< smallest device budget that fits
  /// Device budget from which the next shard can load while one computes. 0: the model does not
  /// spill, or double buffering is off.
  Bytes load_ahead_budget_bytes = 0;
  bool loads_ahead = false;  ///< whether this budget is large enough
  /// Whether all shards stay on a device together. The unit below is then all of them, with the
  /// graphs of all virtual nodes.
  bool shards_stay = false;
  std::vector<std::string> shards;  ///< first and last layer of each: "embed - h.1.mlp"
  /// With a strategy, by shard, then by track: S, a part of the reduction groups; P, a part of the
  /// pieces; A, of the pieces by rows; SP and SA, both; O, the whole; empty, nothing. Otherwise
  /// empty.
  std::vector<std::vector<std::string>> placement;
  Bytes home_weights_bytes = 0;  ///< weights in home_bytes
  Bytes home_moments_bytes = 0;  ///< optimizer state in home_bytes
  Bytes home_sums_bytes = 0;  ///< gradient sums in home_bytes; the rest is boundaries and batches
  Bytes unit_weights_bytes = 0;      ///< weights of the unit that needs the most memory
  Bytes unit_sums_bytes = 0;         ///< its gradient sums
  Bytes unit_activations_bytes = 0;  ///< its activations
  Bytes unit_boundaries_bytes = 0;   ///< its inputs and outputs
  double compute_s_per_step = 0;     ///< on one device, as measured
  Bytes training_state_bytes = 0;    ///< weights, gradients, moments
  Bytes checkpoint_bytes = 0;        ///< most bytes of its checkpoints on disk; 0 without a folder
  Bytes shard_weights_bytes = 0;     ///< sum over shards; shared weights count in each shard
  Bytes sent_bytes_per_step = 0;     ///< from this host to others that train it together
  /// When the oldest of its layers' costs was measured, in seconds since 1970; 0: it is estimated.
  std::int64_t costs_measured_unix_s = 0;
  double costs_load = 0;  ///< share of time in which a thread waited for a core then, at most
};

/// Host memory that these trials share, each content once.
Bytes shared_bytes_of(std::span<const TrialPlan> plans);

}  // namespace spillway
