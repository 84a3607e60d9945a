#include "core/base/fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/check/sum_trace.h"

namespace spillway {
namespace {

using testing::folded;
using testing::leaves;
using testing::left_fold;
using testing::Trace;

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

TEST(Fold, DiffersFromASumPerLane) {
  const auto values = leaves(4);
  const Trace uneven = values[0] + ((values[1] + values[2]) + values[3]);  // lanes [0,1) and [1,4)
  EXPECT_NE(uneven.text, folded(4, 4));
}

/// All orders in which leaves may come.
TEST(TreeSum, AddsAsTheFoldInEveryOrder) {
  for (int n = 1; n <= 6; ++n) {
    std::vector<int> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    const std::vector<Trace> values = leaves(n);
    do {
      TreeSum<Trace> sum(n);
      for (int leaf : order) sum.add({leaf, leaf + 1}, values[static_cast<std::size_t>(leaf)]);
      EXPECT_EQ(sum.whole().text, folded(n, n));
    } while (std::ranges::next_permutation(order).found);
  }
}

TEST(TreeSum, AddsSubtreesOfEveryDivision) {
  constexpr int kLeaves = 7;
  const std::vector<Trace> values = leaves(kLeaves);
  for (int cut = 0; cut <= kLeaves; ++cut) {
    for (int second = cut; second <= kLeaves; ++second) {
      TreeSum<Trace> whole(kLeaves);
      for (const LeafRange range : {LeafRange{second, kLeaves}, {cut, second}, {0, cut}}) {
        TreeSum<Trace> part(kLeaves);
        for (int leaf = range.begin; leaf < range.end; ++leaf) {
          part.add({leaf, leaf + 1}, values[static_cast<std::size_t>(leaf)]);
        }
        std::vector<LeafRange> made;
        for (const auto& [subtree, value] : part.parts()) {
          made.push_back(subtree);
          whole.add(subtree, value);
        }
        EXPECT_EQ(made, subtrees(range, kLeaves));
      }
      EXPECT_EQ(whole.whole().text, folded(kLeaves, kLeaves));
    }
  }
}

TEST(TreeSum, AddsToWhatIsThere) {
  TreeSum<Trace> sum;
  sum.add({}, {"a"});
  sum.add({}, {"b"});
  EXPECT_EQ(sum.whole().text, "(a+b)");
}

}  // namespace
}  // namespace spillway
