#include "scheduler/elastic/lane_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace spillway {
namespace {

using Groups = std::vector<int>;

/// Takes `seconds` per virtual node and has ample memory.
LaneCandidate even(double seconds, double fixed_s = 0) {
  return {.points = {{1, seconds}}, .fixed_s = fixed_s, .max_groups = 1 << 16};
}

SplitProblem problem_of(int groups, std::vector<LaneCandidate> candidates) {
  return {.groups = groups,
          .max_lanes = static_cast<int>(candidates.size()),
          .candidates = std::move(candidates)};
}

double slowest(const SplitProblem& problem, const Groups& groups) {
  double end = 0;
  for (std::size_t c = 0; c < groups.size(); ++c) {
    if (groups[c] == 0) continue;
    end = std::max(end, problem.candidates[c].lane_s(groups[c] * problem.vns_per_group));
  }
  return end;
}

TEST(LaneSplit, GivesEqualDevicesEqualShares) {
  EXPECT_EQ(split_lanes(problem_of(8, {even(1), even(1)}))->groups, (Groups{4, 4}));
  EXPECT_EQ(split_lanes(problem_of(8, {even(1), even(1), even(1)}))->groups, (Groups{3, 3, 2}));
}

TEST(LaneSplit, GivesASlowDeviceLess) {
  const auto split = split_lanes(problem_of(12, {even(1), even(2)}));
  EXPECT_EQ(split->groups, (Groups{8, 4}));
  EXPECT_EQ(split->step_s, 8);
  EXPECT_EQ(split_lanes(problem_of(15, {even(4), even(1)}))->groups, (Groups{3, 12}));
}

TEST(LaneSplit, DeclinesADeviceThatSlowsTheStep) {
  const auto problem = problem_of(12, {even(1), even(16)});
  EXPECT_EQ(split_lanes(problem)->groups, (Groups{12, 0}));
  EXPECT_EQ(split_lanes(problem)->num_lanes(), 1);
  const auto with = split_lanes_with(problem, 1);
  EXPECT_EQ(with->groups, (Groups{11, 1}));
  EXPECT_EQ(with->step_s, 16);
}

TEST(LaneSplit, CountsFixedLaneCosts) {
  EXPECT_EQ(split_lanes(problem_of(4, {even(1), even(1, 2)}))->groups, (Groups{3, 1}));
  EXPECT_EQ(split_lanes(problem_of(4, {even(1), even(1, 3)}))->groups, (Groups{4, 0}));
  auto problem = problem_of(4, {even(1), even(1)});
  problem.join_s = 2;
  EXPECT_EQ(split_lanes(problem)->groups, (Groups{4, 0})) << "no faster, and with more lanes";
  problem.join_s = 1.5;
  EXPECT_EQ(split_lanes(problem)->groups, (Groups{2, 2}));
  EXPECT_EQ(split_lanes(problem)->step_s, 3.5);
}

/// A device that is slow for few virtual nodes and fast for many.
TEST(LaneSplit, InterpolatesMeasuredTimes) {
  const LaneCandidate steep{.points = {{1, 4}, {2, 5}, {4, 6}}, .max_groups = 8};
  EXPECT_EQ(steep.lane_s(1), 4);
  EXPECT_EQ(steep.lane_s(2), 5);
  EXPECT_EQ(steep.lane_s(3), 5.5);
  EXPECT_EQ(steep.lane_s(8), 8);
  EXPECT_EQ(split_lanes(problem_of(8, {even(1.25), steep}))->groups, (Groups{4, 4}));
  EXPECT_EQ(split_lanes(problem_of(2, {even(1.25), steep}))->groups, (Groups{2, 0}));
}

/// Calls `visit` with every distribution of the groups.
template <typename Visit>
void for_each_split(const SplitProblem& problem, Groups& groups, int left, const Visit& visit) {
  if (groups.size() == problem.candidates.size()) {
    if (left == 0) visit(groups);
    return;
  }
  const int most = std::min(left, problem.candidates[groups.size()].max_groups);
  for (int g = 0; g <= most; ++g) {
    groups.push_back(g);
    for_each_split(problem, groups, left - g, visit);
    groups.pop_back();
  }
}

/// The shortest step over all splits, with a lane at `required` unless that is negative.
double shortest(const SplitProblem& problem, int required) {
  double best = std::numeric_limits<double>::infinity();
  Groups groups;
  for_each_split(problem, groups, problem.groups, [&](const Groups& split) {
    if (required >= 0 && split[static_cast<std::size_t>(required)] == 0) return;
    const auto lanes = static_cast<int>(std::ranges::count_if(split, [](int g) { return g > 0; }));
    if (lanes > problem.max_lanes) return;
    best = std::min(best, slowest(problem, split) + problem.join_s * (lanes - 1));
  });
  return best;
}

SplitProblem random_problem(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  SplitProblem problem{.groups = between(1, 7), .vns_per_group = between(1, 3)};
  const int num_devices = between(1, 4);
  problem.max_lanes = between(1, num_devices);
  problem.join_s = between(0, 4);
  for (int d = 0; d < num_devices; ++d) {
    LaneCandidate candidate{.fixed_s = static_cast<double>(between(0, 6)),
                            .least_s = static_cast<double>(between(0, 12)),
                            .max_groups = between(0, 8)};
    double seconds = 0;
    for (int vns = 1; vns <= between(1, 16); vns *= 2) {
      candidate.points.push_back({vns, seconds += between(1, 9)});
    }
    problem.candidates.push_back(std::move(candidate));
  }
  return problem;
}

TEST(LaneSplit, AgreesWithAnExhaustiveSearch) {
  int split_up = 0, declined = 0, impossible = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SplitProblem problem = random_problem(seed);
    const auto num_devices = static_cast<int>(problem.candidates.size());
    for (int required = -1; required < num_devices; ++required) {
      const auto split = required < 0 ? split_lanes(problem) : split_lanes_with(problem, required);
      const double best = shortest(problem, required);
      ASSERT_EQ(split.has_value(), std::isfinite(best));
      if (!split) {
        ++impossible;
        continue;
      }
      EXPECT_DOUBLE_EQ(split->step_s, best);
      EXPECT_DOUBLE_EQ(split->step_s,
                       slowest(problem, split->groups) + problem.join_s * (split->num_lanes() - 1));
      EXPECT_EQ(split->num_groups(), problem.groups);
      EXPECT_LE(split->num_lanes(), problem.max_lanes);
      for (std::size_t c = 0; c < split->groups.size(); ++c) {
        EXPECT_LE(split->groups[c], problem.candidates[c].max_groups);
      }
      if (required >= 0) {
        EXPECT_GT(split->groups[static_cast<std::size_t>(required)], 0);
      }
      if (split->num_lanes() > 1) ++split_up;
      if (split->num_lanes() < std::min(problem.max_lanes, problem.groups)) ++declined;
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(split_up, 500);
  EXPECT_GT(declined, 500);
  EXPECT_GT(impossible, 100);
}

}  // namespace
}  // namespace spillway
