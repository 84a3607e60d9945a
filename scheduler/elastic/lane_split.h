#pragma once

#include <optional>
#include <vector>

namespace spillway {

/// A measured device that could take a lane of a job.
struct LaneCandidate {
  struct Point {
    int virtual_nodes = 1;
    double seconds = 0;
  };
  /// Measured compute, ascending by virtual nodes, at least one point. Interpolated linearly, and
  /// extrapolated from the last two points.
  std::vector<Point> points;
  double fixed_s = 0;  ///< fixed cost of a lane: loading weights, sending gradient sums
  double least_s = 0;  ///< lower bound on the rest: copies that overlap with compute
  int max_groups = 0;  ///< that its memory allows; 0: it cannot take part

  /// Seconds of a lane of `virtual_nodes` virtual nodes.
  double lane_s(int virtual_nodes) const;
  /// The compute part of it.
  double compute_s(int virtual_nodes) const;
};

/// How to divide a step's reduction groups among unequal devices.
struct SplitProblem {
  int groups = 1, vns_per_group = 1;
  int max_lanes = 1;
  double join_s = 0;  ///< per lane after the first: the host adds its gradient sums
  std::vector<LaneCandidate> candidates;
};

struct LaneSplit {
  std::vector<int> groups;  ///< by candidate; 0: takes no part
  double step_s = 0;        ///< the slowest lane, and the cost of joining all lanes

  int num_lanes() const;
  int num_groups() const;
};

/// The split with the shortest step; ties go to fewer lanes, then to more groups on the first
/// candidates. Nothing if memory allows no split.
/// Exact. Call the time at which a device finishes its g-th group a *slot*; the slots of a device
/// never decrease. With at most m lanes, a step of length T exists if and only if the m devices
/// with the most slots up to T have `groups` slots in total. So the best T is a slot. On these
/// devices each group gets the earliest free slot, and none is later than T.
std::optional<LaneSplit> split_lanes(const SplitProblem& problem);

/// The best split in which this candidate has a lane: it shows the cost of using the candidate.
std::optional<LaneSplit> split_lanes_with(const SplitProblem& problem, int candidate);

}  // namespace spillway
