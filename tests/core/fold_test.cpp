#include "core/fold.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace spillway {
namespace {

/// A "sum" that shows how it was associated: + is neither associative nor commutative.
struct Trace {
  std::string text;
  friend Trace operator+(const Trace& a, const Trace& b) {
    return {"(" + a.text + "+" + b.text + ")"};
  }
  bool operator==(const Trace&) const = default;
};

std::vector<Trace> leaves(int n) {
  std::vector<Trace> all;
  for (int i = 0; i < n; ++i) all.push_back({std::string(1, static_cast<char>('a' + i))});
  return all;
}

std::string folded(int n, int groups) {
  const auto all = leaves(n);
  return fold(std::span<const Trace>(all), groups).text;
}

Trace left_fold(const std::vector<Trace>& values) {
  Trace sum = values.front();
  for (std::size_t i = 1; i < values.size(); ++i) sum = sum + values[i];
  return sum;
}

/// The definition, top down: a node is its left half plus its right half, if that has any group.
Trace tree(const std::vector<Trace>& groups, std::size_t first, int level) {
  if (level == 0) return groups[first];
  const std::size_t right = first + (std::size_t{1} << (level - 1));
  const Trace left_sum = tree(groups, first, level - 1);
  return right < groups.size() ? left_sum + tree(groups, right, level - 1) : left_sum;
}

TEST(Fold, AssociatesAsWritten) {
  EXPECT_EQ(folded(1, 1), "a");
  EXPECT_EQ(folded(3, 3), "((a+b)+c)");
  EXPECT_EQ(folded(4, 4), "((a+b)+(c+d))");
  EXPECT_EQ(folded(5, 5), "(((a+b)+(c+d))+e)");
  EXPECT_EQ(folded(6, 6), "(((a+b)+(c+d))+(e+f))");
  EXPECT_EQ(folded(7, 7), "(((a+b)+(c+d))+((e+f)+g))");
  EXPECT_EQ(folded(4, 1), "(((a+b)+c)+d)");
  EXPECT_EQ(folded(6, 2), "(((a+b)+c)+((d+e)+f))");
}

TEST(Fold, EqualsItsDefinitionTopDown) {
  for (int groups = 1; groups <= 26; ++groups) {
    EXPECT_EQ(folded(groups, groups), tree(leaves(groups), 0, 5).text) << groups;
  }
}

TEST(Fold, DiffersFromALeftFold) {
  for (int groups = 4; groups <= 16; ++groups) {
    EXPECT_NE(folded(groups, groups), left_fold(leaves(groups)).text) << groups;
  }
  const std::vector<float> values{1e8f, 1, -1e8f, 1};
  const float left = ((values[0] + values[1]) + values[2]) + values[3];
  EXPECT_NE(fold(std::span<const float>(values), 4), left);
}

/// Lane boundaries 0 = b0 < b1 < ... = groups from a bit mask of the inner ones.
std::vector<int> boundaries(int groups, unsigned mask) {
  std::vector<int> all{0};
  for (int g = 1; g < groups; ++g) {
    if (mask >> (g - 1) & 1u) all.push_back(g);
  }
  all.push_back(groups);
  return all;
}

/// What lanes and host do: each lane sums its maximal subtrees, the host adds them up.
std::string summed_by_lanes(const std::vector<Trace>& groups, const std::vector<int>& lanes) {
  const int num_groups = static_cast<int>(groups.size());
  std::map<int, Trace> sums;
  std::vector<int> firsts;
  for (std::size_t lane = 0; lane + 1 < lanes.size(); ++lane) {
    for (const TreeNode& node : maximal_subtrees(lanes[lane], lanes[lane + 1], num_groups)) {
      sums[node.first] = tree(groups, static_cast<std::size_t>(node.first), node.level);
      firsts.push_back(node.first);
    }
  }
  for (const auto& [into, from] : remaining_merges(firsts, num_groups)) {
    sums.at(into) = sums.at(into) + sums.at(from);
    sums.erase(from);
  }
  return sums.size() == 1 ? sums.at(0).text : "not finished";
}

TEST(Fold, EverySplitIntoLanesGivesTheSameSum) {
  for (int groups = 1; groups <= 16; ++groups) {
    const auto values = leaves(groups);
    const std::string expected = folded(groups, groups);
    for (unsigned mask = 0; mask < 1u << (groups - 1); ++mask) {
      ASSERT_EQ(summed_by_lanes(values, boundaries(groups, mask)), expected)
          << groups << " groups, lane boundaries " << mask;
    }
  }
}

TEST(Fold, SummingEachLaneByItselfDoesNot) {
  const auto values = leaves(4);
  const Trace uneven = values[0] + ((values[1] + values[2]) + values[3]);  // lanes [0,1) and [1,4)
  EXPECT_NE(uneven.text, folded(4, 4));
}

TEST(MaximalSubtrees, AreTheLargestWithinALane) {
  using Nodes = std::vector<TreeNode>;
  EXPECT_EQ(maximal_subtrees(0, 8, 8), (Nodes{{0, 3}}));
  EXPECT_EQ(maximal_subtrees(1, 8, 8), (Nodes{{1, 0}, {2, 1}, {4, 2}}));
  EXPECT_EQ(maximal_subtrees(1, 7, 8), (Nodes{{1, 0}, {2, 1}, {4, 1}, {6, 0}}));
  EXPECT_EQ(maximal_subtrees(4, 7, 7), (Nodes{{4, 2}})) << "group 7 does not exist";
  EXPECT_EQ(maximal_subtrees(4, 5, 5), (Nodes{{4, 0}})) << "a single group is a leaf";
  EXPECT_EQ(maximal_subtrees(3, 3, 8), Nodes{});
}

/// The nodes cover [begin, end) one after another, and no node's parent lies in it as well.
void expect_maximal_cover(int begin, int end, int groups) {
  int at = begin;
  for (const TreeNode& node : maximal_subtrees(begin, end, groups)) {
    const int size = 1 << node.level;
    ASSERT_EQ(node.first, at);
    ASSERT_EQ(at % size, 0);
    const int parent = at / (2 * size) * (2 * size);
    const bool parent_differs = at + size < groups || parent < at;
    EXPECT_FALSE(parent_differs && parent >= begin && std::min(parent + 2 * size, groups) <= end);
    at = std::min(at + size, groups);
  }
  EXPECT_EQ(at, end);
}

TEST(MaximalSubtrees, CoverTheLaneWithoutSiblings) {
  for (int groups = 1; groups <= 16; ++groups) {
    for (int begin = 0; begin < groups; ++begin) {
      for (int end = begin; end <= groups; ++end) expect_maximal_cover(begin, end, groups);
    }
  }
}

}  // namespace
}  // namespace spillway
