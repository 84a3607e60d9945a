#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "scheduler/plan/layout.h"
#include "spillway/ids.h"
#include "tests/support/check/sum_trace.h"

namespace spillway {
namespace {

using testing::folded;
using testing::leaves;
using testing::left_fold;
using testing::Trace;

std::vector<GroupRange> lanes_of(int groups, unsigned mask) {
  std::vector<GroupRange> lanes{{0, 0}};
  for (int g = 1; g < groups; ++g) {
    if ((mask >> (g - 1) & 1u) == 0) continue;
    lanes.back().end = g;
    lanes.push_back({g, g});
  }
  lanes.back().end = groups;
  return lanes;
}

/// Applies the sum instructions of a lane's ops.
template <typename T>
std::map<int, T> run_lane(GroupRange lane, int groups, const std::vector<T>& values) {
  const int per_group = static_cast<int>(values.size()) / groups;
  const FoldPlan plan = plan_fold(lane, groups, per_group);
  std::vector<T> slots(at(plan.num_slots));
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const FoldStep& step = plan.steps[i];
    const T& value = values[at(lane.begin * per_group) + i];
    T& slot = slots[at(step.slot)];
    slot = step.fresh ? value : slot + value;
    for (const auto& [into, from] : step.merges)
      slots[at(into)] = slots[at(into)] + slots[at(from)];
  }
  std::map<int, T> roots;
  for (const auto& [first, slot] : plan.roots) roots[first] = slots[at(slot)];
  return roots;
}

/// Sums over lanes, then on the host. Nothing if the sums are not finished.
template <typename T>
std::optional<T> run_all(const std::vector<GroupRange>& lanes, int groups,
                         const std::vector<T>& values) {
  std::map<int, T> sums;
  std::vector<int> firsts;
  for (GroupRange lane : lanes) {
    for (const auto& [first, sum] : run_lane(lane, groups, values)) {
      sums[first] = sum;
      firsts.push_back(first);
    }
  }
  for (const auto& [into, from] : remaining_merges(firsts, groups)) {
    sums.at(into) = sums.at(into) + sums.at(from);
    sums.erase(from);
  }
  return sums.size() == 1 ? std::optional(sums.at(0)) : std::nullopt;
}

/// A gradient: floats that are added elementwise and compared bit by bit.
struct Gradient {
  std::array<float, 64> elements{};
  friend Gradient operator+(Gradient a, const Gradient& b) {
    for (std::size_t i = 0; i < a.elements.size(); ++i) a.elements[i] += b.elements[i];
    return a;
  }
  bool operator==(const Gradient& other) const {
    return std::memcmp(elements.data(), other.elements.data(), sizeof elements) == 0;
  }
};

std::vector<Gradient> gradients(int n) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<Gradient> all(at(n));
  for (Gradient& gradient : all) {
    for (float& element : gradient.elements) element = uniform(random);
  }
  return all;
}

/// The second half is a negative control: a left fold of the same floats is another sum.
TEST(FoldPlan, GivesTheBitsOfTheFoldOverLanes) {
  for (const int groups : {1, 2, 3, 5, 8, 12, 16, 31, 48, 64}) {
    for (const int per_group : {1, 2, 3, 7}) {
      const auto values = gradients(groups * per_group);
      const Gradient expected = fold(std::span<const Gradient>(values), groups);
      for (int lanes = 1; lanes <= std::min(groups, 9); ++lanes) {
        JobShape shape{.virtual_nodes = groups * per_group, .groups = groups};
        shape.lane_groups = split_groups(groups, lanes);
        const auto sum = run_all(lane_ranges(shape), groups, values);
        ASSERT_TRUE(sum && *sum == expected) << groups << " " << per_group << " " << lanes;
      }
      const bool same_order = groups == 1 || (per_group == 1 && groups <= 3);
      EXPECT_EQ(left_fold(values) == expected, same_order) << groups << " " << per_group;
    }
  }
}

TEST(FoldPlan, GivesTheSameSumForEverySplit) {
  for (int groups = 1; groups <= 12; ++groups) {
    for (int per_group : {1, 2}) {
      const auto values = leaves(groups * per_group);
      const Trace expected = fold(std::span<const Trace>(values), groups);
      for (unsigned mask = 0; mask < 1u << (groups - 1); ++mask) {
        ASSERT_EQ(run_all(lanes_of(groups, mask), groups, values), expected)
            << groups << " groups of " << per_group << ", lane boundaries " << mask;
      }
    }
  }
}

/// Negative control: a lane that sums its virtual nodes from the left.
TEST(FoldPlan, DiffersFromLeftFoldsPerLane) {
  const auto values = leaves(8);
  const std::vector<Trace> low(values.begin(), values.begin() + 5),
      high(values.begin() + 5, values.end());
  EXPECT_NE((left_fold(low) + left_fold(high)).text, folded(8, 8));
  EXPECT_NE(left_fold(values).text, folded(8, 8));
}

TEST(FoldPlan, KeepsFewSums) {
  EXPECT_EQ(plan_fold({0, 1}, 1, 16).num_slots, 1);
  EXPECT_EQ(plan_fold({0, 8}, 8, 1).num_slots, 4);  // log2(8) + 1
  for (int groups = 1; groups <= 64; groups *= 2) {
    int log2 = 0;
    while (1 << log2 < groups) ++log2;
    EXPECT_LE(plan_fold({0, groups}, groups, 3).num_slots, log2 + 2);
  }
}

TEST(FoldPlan, SendsFinishedSubtreesHome) {
  using Firsts = std::vector<int>;
  const auto firsts = [](GroupRange lane, int groups) {
    Firsts all;
    for (const auto& [first, slot] : plan_fold(lane, groups, 1).roots) all.push_back(first);
    return all;
  };
  EXPECT_EQ(firsts({0, 8}, 8), (Firsts{0}));
  EXPECT_EQ(firsts({0, 5}, 8), (Firsts{0, 4}));
  EXPECT_EQ(firsts({5, 8}, 8), (Firsts{5, 6}));
  EXPECT_EQ(firsts({1, 7}, 8), (Firsts{1, 2, 4, 6}));
  for (int groups = 1; groups <= 20; ++groups) EXPECT_EQ(firsts({0, groups}, groups), Firsts{0});
}

}  // namespace
}  // namespace spillway
