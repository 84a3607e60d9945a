#include "core/base/divisor.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(LargestDivisor, IsTheLargestUpToALimit) {
  EXPECT_EQ(largest_divisor(12, 5), 4);
  EXPECT_EQ(largest_divisor(12, 12), 12);
  EXPECT_EQ(largest_divisor(12, 100), 12);
  EXPECT_EQ(largest_divisor(7, 6), 1);
}

/// Values of fields that are refused.
TEST(LargestDivisor, IsOneForOtherNumbers) {
  for (const int other : {0, -1, -8}) {
    EXPECT_EQ(largest_divisor(other, 8), 1);
    EXPECT_EQ(largest_divisor(8, other), 1);
  }
}

}  // namespace
}  // namespace spillway
