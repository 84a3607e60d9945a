#include "spilling/host_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace spillway {
namespace {

class HostArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device("cpu:0", 1_MiB);
  HostArena arena_{1_MiB, [this](Bytes bytes) { return device_->allocate_host(bytes); }};
};

TEST_F(HostArenaTest, RegionsAreExactZeroedAndGivenBack) {
  {
    const auto region = arena_.reserve(100'000);
    EXPECT_EQ(region.size(), 100'000u);
    EXPECT_EQ(arena_.in_use(), 100'000u);
    EXPECT_TRUE(std::all_of(region.data(), region.data() + region.size(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
  EXPECT_EQ(arena_.in_use(), 0u);
  EXPECT_EQ(arena_.peak(), 100'000u);
}

TEST_F(HostArenaTest, TheBudgetIsHard) {
  auto most = arena_.reserve(1_MiB);
  try {
    arena_.reserve(1);
    FAIL() << "more than the budget";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, Tier::host);
    EXPECT_EQ(error.requested, 1u);
    EXPECT_EQ(error.available, 0u);
  }
  EXPECT_EQ(arena_.in_use(), 1_MiB);
  most = {};
  EXPECT_NO_THROW(arena_.reserve(1_MiB));
}

TEST_F(HostArenaTest, AMovedRegionIsGivenBackOnce) {
  auto a = arena_.reserve(1000);
  std::byte* data = a.data();
  HostArena::Region b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: what is left is empty
  EXPECT_EQ(b.data(), data);
  auto c = arena_.reserve(500);
  c = std::move(b);
  EXPECT_EQ(arena_.in_use(), 1000u);
  c = {};
  EXPECT_EQ(arena_.in_use(), 0u);
}

TEST(HostArena, AFailingAllocationCostsNoBudget) {
  HostArena arena(1_MiB, [](Bytes bytes) -> std::unique_ptr<DeviceMemory> {
    throw OutOfMemory(Tier::host, bytes, 0, "a test");
  });
  EXPECT_THROW(arena.reserve(4096), OutOfMemory);
  EXPECT_EQ(arena.in_use(), 0u);
}

}  // namespace
}  // namespace spillway
