#pragma once

#include <optional>
#include <vector>

namespace spillway {

/// A device that could take a lane of a job, as measured.
struct LaneCandidate {
  struct Point {
    int virtual_nodes = 1;
    double seconds = 0;
  };
  /// Compute of so many virtual nodes there, ascending, at least one. Between points, and behind
  /// the last two, it grows evenly.
  std::vector<Point> points;
  double fixed_s = 0;  ///< of a lane there, however small: weights come, gradient sums leave
  double least_s = 0;  ///< beside that: copies that compute hides where it takes longer
  int max_groups = 0;  ///< that its memory allows; 0: it cannot take part

  /// Seconds of a lane of so many virtual nodes.
  double lane_s(int virtual_nodes) const;
  /// Its compute alone.
  double compute_s(int virtual_nodes) const;
};

/// How to divide a step's reduction groups among unequal devices.
struct SplitProblem {
  int groups = 1, vns_per_group = 1;
  int max_lanes = 1;
  double join_s = 0;  ///< of each lane but one: the host adds its gradient sums to the others'
  std::vector<LaneCandidate> candidates;
};

struct LaneSplit {
  std::vector<int> groups;  ///< by candidate; 0: takes no part
  double step_s = 0;        ///< the slowest lane, and what joining all costs

  int num_lanes() const;
  int num_groups() const;
};

/// The split with the shortest step; among equals the fewest lanes, then the first candidates take
/// more. Nothing where memory allows none.
///
/// Exact. A lane that has g groups ends at its g-th *slot*, the time of g groups there, and slots
/// of a device do not fall. So with at most m lanes, a step of T is possible if and only if the m
/// devices with most slots up to T have `groups` of them in all, and the least such T is a slot. On
/// these devices each group takes the least slot that is left, of which none is later than T.
std::optional<LaneSplit> split_lanes(const SplitProblem& problem);

/// Likewise, among the splits in which this candidate has a lane: what it would cost to use it.
std::optional<LaneSplit> split_lanes_with(const SplitProblem& problem, int candidate);

}  // namespace spillway
