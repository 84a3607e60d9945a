#include "spilling/tiers/device_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "spillway/error.h"

namespace spillway {
namespace {

TEST(DeviceArena, TakesTheWholeBudget) {
  const auto device = make_cpu_device("cpu:0", 64_KiB);
  const DeviceArena arena(*device);
  EXPECT_EQ(arena.size(), 64_KiB);
  EXPECT_THROW(device->allocate(1), OutOfMemory);
}

TEST(DeviceArena, RefusesRangesOutside) {
  const auto device = make_cpu_device("cpu:0", 64_KiB);
  const DeviceArena arena(*device);
  std::byte* base = arena.at(0, 64_KiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(base) % kAlignment, 0u);
  EXPECT_EQ(arena.at(4096, 10), base + 4096);
  EXPECT_EQ(arena.at(64_KiB, 0), base + 64_KiB);
  EXPECT_THROW(arena.at(64_KiB, 1), std::out_of_range);
  EXPECT_THROW(arena.at(1, 64_KiB), std::out_of_range);
  EXPECT_THROW(arena.at(~Bytes{0}, 2), std::out_of_range);
  EXPECT_THROW(arena.at(64, ~Bytes{0}), std::out_of_range);  // their sum is 63
}

TEST(DeviceArena, ReturnsItsMemory) {
  const auto device = make_cpu_device("cpu:0", 64_KiB);
  { const DeviceArena arena(*device); }
  EXPECT_NO_THROW(DeviceArena{*device});
}

}  // namespace
}  // namespace spillway
