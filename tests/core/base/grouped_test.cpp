#include "core/base/grouped.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

std::vector<int> numbers(const Grouped& grouped, int group) {
  return {grouped[group].begin(), grouped[group].end()};
}

TEST(Grouped, KeepsTheOrderWithinGroups) {
  const Grouped grouped(3, {{2, 5}, {0, 7}, {2, 1}, {0, 7}});
  ASSERT_EQ(grouped.groups(), 3u);
  EXPECT_EQ(numbers(grouped, 0), (std::vector{7, 7}));
  EXPECT_TRUE(grouped[1].empty());
  EXPECT_EQ(numbers(grouped, 2), (std::vector{5, 1}));
  EXPECT_EQ(grouped.numbers(), (std::vector{7, 7, 5, 1}));
  EXPECT_EQ(Grouped().groups(), 0u);
}

TEST(Grouped, HasAnInverse) {
  const Grouped inverse = Grouped(3, {{2, 1}, {0, 1}, {2, 0}}).inverse(3);
  ASSERT_EQ(inverse.groups(), 3u);
  EXPECT_EQ(numbers(inverse, 0), std::vector{2});
  EXPECT_EQ(numbers(inverse, 1), (std::vector{0, 2}));
  EXPECT_TRUE(inverse[2].empty());
}

}  // namespace
}  // namespace spillway
