#include "core/device/activation_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/device/mapped_memory.h"
#include "core/device/memory_split.h"
#include "spillway/error.h"

namespace spillway {
namespace {

class ActivationPoolTest : public ::testing::Test {
 protected:
  static constexpr Bytes kSize = 64_KiB;
  ActivationPool pool_{"pool", std::make_unique<MappedMemory>(kSize, Tier::device, "pool")};
};

TEST_F(ActivationPoolTest, ReusesFreedBlocks) {
  std::vector<std::byte*> blocks;
  for (const Bytes bytes : std::vector<Bytes>{1, 511, 512, 513, 0}) {
    blocks.push_back(static_cast<std::byte*>(pool_.place(bytes)));
  }
  EXPECT_EQ(blocks[1] - blocks[0], 512);
  EXPECT_EQ(blocks[3] - blocks[2], 512);
  EXPECT_EQ(blocks[4] - blocks[3], 1024);
  pool_.remove(blocks[3], 513);
  EXPECT_EQ(pool_.place(1024), blocks[3]);
  EXPECT_NE(pool_.place(1), blocks[4]) << "an empty block has a place too";
}

TEST_F(ActivationPoolTest, ReportsTheLargestHole) {
  void* const first = pool_.place(kSize / 2);
  pool_.place(kSize / 2);
  pool_.remove(first, kSize / 2);
  try {
    pool_.place(kSize / 2 + 1);
    FAIL() << "it has no such hole";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.available, kSize / 2);
    EXPECT_EQ(error.tier, Tier::device);
  }
  EXPECT_EQ(pool_.place(kSize / 2), first);
}

TEST_F(ActivationPoolTest, ChargesLikeAnyMeter) {
  pool_.begin_op(1000);
  pool_.charge(1000);
  EXPECT_THROW(pool_.charge(1), OutOfMemory);
  pool_.discharge(1000);
  EXPECT_EQ(pool_.peak_since_begin(), 1000u);
}

TEST(MemorySplit, SharesAllMemoryWithoutAPool) {
  const MemorySplit split;
  EXPECT_EQ(split.planned(1_MiB), 1_MiB);
  EXPECT_EQ(split.needed(10, 20), 30u);
}

TEST(MemorySplit, NeedsRoomForBothParts) {
  for (const double share : {0.01, 0.25, 0.6, 0.9}) {
    const MemorySplit split{share};
    for (Bytes planned = 0; planned < 64_MiB; planned = planned * 3 + 1000) {
      for (Bytes activations = 0; activations < 64_MiB; activations = activations * 3 + 1000) {
        const Bytes needed = split.needed(planned, activations);
        EXPECT_GE(split.planned(needed), planned);
        EXPECT_GE(split.activations(needed), activations + activations / 8);
        EXPECT_EQ(split.activations(needed) % kPage, 0u);
        const auto pages = static_cast<Bytes>(2 / std::min(share, 1 - share));
        if (needed <= pages * kPage) continue;
        const Bytes less = needed - pages * kPage;
        EXPECT_TRUE(split.planned(less) < planned ||
                    split.activations(less) < activations * 9 / 8 + 64_KiB)
            << needed << " is more than needed for " << planned << ", " << activations;
      }
    }
  }
}

}  // namespace
}  // namespace spillway
