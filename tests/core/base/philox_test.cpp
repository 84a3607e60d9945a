#include "spillway/philox.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

// The known answers that the authors publish with Random123 (philox4x32, 10 rounds).
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DependsOnEveryWordOfCounterAndKey) {
  const PhiloxBlock base = philox({1, 2, 3, 4}, 5);
  EXPECT_NE(philox({0, 2, 3, 4}, 5), base);
  EXPECT_NE(philox({1, 0, 3, 4}, 5), base);
  EXPECT_NE(philox({1, 2, 0, 4}, 5), base);
  EXPECT_NE(philox({1, 2, 3, 0}, 5), base);
  EXPECT_NE(philox({1, 2, 3, 4}, 0), base);
  EXPECT_NE(philox({1, 2, 3, 4}, 5 + (1ull << 32)), base);
}

static_assert(philox({0, 0, 0, 0}, 0)[0] == 0x6627e8d5, "also at compile time");

}  // namespace
}  // namespace spillway
