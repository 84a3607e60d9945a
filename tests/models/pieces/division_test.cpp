#include "models/pieces/division.h"

#include <gtest/gtest.h>

#include "tests/support/check/thrown.h"

namespace spillway::testing {
namespace {

std::string reason_of_reshape(const Shape& from, const Shape& to, const Division& division) {
  return thrown<Indivisible>([&] { before_reshape(from, to, division); }).reason;
}

TEST(Division, FollowsAReshapeToWhereTheElementsWere) {
  // Heads as features.
  EXPECT_EQ(before_reshape({2, 16, 32}, {2, 16, 4, 8}, {2}), (Division{2}));
  EXPECT_EQ(before_reshape({2, 16, 4, 8}, {2, 16, 32}, {2}), (Division{2}));
  // Samples and positions as one dimension.
  EXPECT_EQ(before_reshape({2, 16, 32}, {32, 32}, {1}), (Division{2}));
  EXPECT_EQ(before_reshape({32, 32}, {2, 16, 32}, {2}), (Division{1}));
  // Heads that share keys: of each of 2 samples, a part of 3 keys and all 4 that read them.
  EXPECT_EQ(before_reshape({2, 3, 4, 5}, {2, 12, 5}, {1}), (Division{1}));
  // Samples and heads as one dimension: of each sample, a part.
  EXPECT_EQ(before_reshape({8, 5}, {2, 4, 5}, {1}), (Division{0, 2}));
  EXPECT_EQ(before_reshape({2, 4, 5}, {8, 5}, {0, 2}), (Division{1}));
  // Dimensions of one element do not matter.
  EXPECT_EQ(before_reshape({2, 1, 6}, {2, 6}, {1}), (Division{2}));
}

TEST(Division, IsNoneWhereAReshapeMixesElements) {
  EXPECT_NE(reason_of_reshape({3, 4}, {4, 3}, {1}).find("from [3, 4] to [4, 3]"),
            std::string::npos);
}

TEST(Division, NeedsPartsOfWholeSize) {
  EXPECT_EQ(part_size({2, 12}, {1}, 3), 4);
  EXPECT_EQ(part_size({2, 12}, {1, 2}, 3), 4);
  const auto part = [] { part_size({2, 12}, {1, 3}, 3); };
  EXPECT_EQ(thrown<Indivisible>(part).reason, "4 cannot be divided by 3");
}

}  // namespace
}  // namespace spillway::testing
