#pragma once

#include <string>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// What is known of a trial before it runs.
struct TrialPlan {
  int num_shards = 0;
  std::string order;
  int lanes = 0;
  std::vector<int> lane_groups;           ///< reduction groups of each lane
  std::vector<std::string> lane_devices;  ///< that lanes are made for; empty: any device takes any
  /// For each device that a trial of several lanes does better without: why, as a sentence.
  std::vector<std::string> declined;
  Bytes home_bytes = 0;             ///< host
  Bytes smallest_budget_bytes = 0;  ///< of a device
  /// Of a device that has room to load the next shard while one computes; 0: none spills, or
  /// loading ahead is off.
  Bytes load_ahead_budget_bytes = 0;
  bool loads_ahead = false;
  std::vector<std::string> shards;  ///< their first and last layers: "embed - h.1.mlp"
  /// What makes up the home; the rest is boundaries, their gradients and batches.
  Bytes home_weights_bytes = 0, home_moments_bytes = 0, home_sums_bytes = 0;
  /// What makes up the room of the unit that needs most.
  Bytes unit_weights_bytes = 0, unit_sums_bytes = 0;
  Bytes unit_activations_bytes = 0, unit_boundaries_bytes = 0;
  double compute_s_per_step = 0;  ///< on one device, as measured
  Bytes training_state_bytes = 0;
  Bytes checkpoint_bytes = 0;     ///< on disk, the most at once, if it has a folder for them
  Bytes shard_weights_bytes = 0;  ///< of all shards; what several of them use counts in each
};

}  // namespace spillway
