#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "spilling/tiers/host_arena.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"

/// Contract tests of Store, and of the arena that keeps its budget; each implementation
/// instantiates them in its own file:
///   INSTANTIATE_TEST_SUITE_P(File, StoreConformance, testing::Values(StoreCase{...}), ...);
namespace spillway {

struct StoreCase {
  std::string name;
  /// A store that may use the device or the folder, both of which outlive it.
  std::function<std::unique_ptr<Store>(Device& device, const std::filesystem::path& folder)> make;
  friend void PrintTo(const StoreCase& test, std::ostream* out) { *out << test.name; }
};

class StoreConformance : public ::testing::TestWithParam<StoreCase> {
 protected:
  static bool is_zero(const std::byte* data, Bytes bytes) {
    return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; });
  }
  /// Bytes that differ from every shift or swap of themselves.
  static void fill(std::byte* data, Bytes bytes, unsigned seed) {
    for (Bytes i = 0; i < bytes; ++i) {
      data[i] = static_cast<std::byte>((seed = seed * 1664525u + 1013904223u) >> 24);
    }
  }
  static bool is_filled(const std::byte* data, Bytes bytes, unsigned seed) {
    std::vector<std::byte> expected(bytes);
    fill(expected.data(), bytes, seed);
    return std::equal(expected.begin(), expected.end(), data);
  }

  const testing::TemporaryFolder folder_;
  const std::unique_ptr<Device> device_ = make_cpu_device("cpu:0", 1_MiB);
  std::unique_ptr<Store> store_ = GetParam().make(*device_, folder_.path());
  HostArena arena_{1_MiB, *store_};
};

TEST_P(StoreConformance, AllocatesExactZeroedAlignedMemory) {
  for (const Bytes bytes : {Bytes{0}, Bytes{1}, kPage, kPage + 1, Bytes{100'000}}) {
    const auto memory = store_->allocate(bytes);
    EXPECT_EQ(memory->size(), bytes);
    ASSERT_NE(memory->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % kPage, 0u);
    EXPECT_TRUE(is_zero(memory->data(), bytes));
    fill(memory->data(), bytes, 1);
  }
}

TEST_P(StoreConformance, ZeroesReturnedMemory) {
  for (int round = 0; round < 3; ++round) {
    const auto memory = store_->allocate(1_MiB);
    EXPECT_TRUE(is_zero(memory->data(), 1_MiB));
    fill(memory->data(), 1_MiB, 1);
  }
}

TEST_P(StoreConformance, KeepsBytesBesideOtherRegions) {
  std::vector<std::unique_ptr<DeviceMemory>> all;
  for (unsigned i = 0; i < 8; ++i) {
    all.push_back(store_->allocate(100'000));
    fill(all.back()->data(), 100'000, i);
  }
  all.erase(all.begin() + 3);
  for (unsigned i = 0; i < 7; ++i) {
    EXPECT_TRUE(is_filled(all[i]->data(), 100'000, i < 3 ? i : i + 1)) << i;
  }
}

TEST_P(StoreConformance, KeepsMemoryBeyondTheStore) {
  const auto memory = store_->allocate(64_KiB);
  store_.reset();
  fill(memory->data(), 64_KiB, 7);
  EXPECT_TRUE(is_filled(memory->data(), 64_KiB, 7));
}

TEST_P(StoreConformance, IsReachedByCopyQueuesInBothDirections) {
  const auto home = store_->allocate(64_KiB), back = store_->allocate(64_KiB);
  const auto on_device = device_->allocate(64_KiB);
  fill(home->data(), 64_KiB, 5);
  device_->host_to_device().copy_async(on_device->data(), home->data(), 64_KiB);
  device_->device_to_host().wait(device_->host_to_device().record());
  device_->device_to_host().copy_async(back->data() + 3, on_device->data(), 60_KiB);
  device_->device_to_host().record().wait();
  EXPECT_TRUE(is_filled(back->data() + 3, 60_KiB, 5));
  EXPECT_TRUE(is_zero(back->data(), 3));
  EXPECT_TRUE(is_zero(back->data() + 3 + 60_KiB, 4_KiB - 3));
}

/// Sizes larger than any machine: one possible for a file, one that overflows.
TEST_P(StoreConformance, RefusesTooLargeRequestsWithNumbers) {
  for (const Bytes bytes : {Bytes{1} << 60, ~Bytes{0}}) {
    const auto error = testing::thrown<OutOfMemory>([&] { store_->allocate(bytes); });
    EXPECT_EQ(error.requested, bytes);
    EXPECT_GT(error.available, 0u);
    EXPECT_LT(error.available, bytes);
    HostArena vast(~Bytes{0}, *store_);
    EXPECT_THROW(vast.reserve(bytes), OutOfMemory);
    EXPECT_EQ(vast.in_use(), 0u);
    EXPECT_EQ(vast.peak(), 0u);
  }
  EXPECT_EQ(store_->allocate(1_MiB)->size(), 1_MiB);
}

TEST_P(StoreConformance, ReturnsRegions) {
  {
    const auto region = arena_.reserve(100'000);
    EXPECT_EQ(region.size(), 100'000u);
    EXPECT_TRUE(is_zero(region.data(), region.size()));
    EXPECT_EQ(arena_.in_use(), 100'000u);
  }
  EXPECT_EQ(arena_.in_use(), 0u);
}

TEST_P(StoreConformance, EnforcesTheBudget) {
  auto first = arena_.reserve(1_MiB - 100);
  const auto error = testing::thrown<OutOfMemory>([&] { arena_.reserve(101); });
  EXPECT_EQ(error.tier, Tier::host);
  EXPECT_EQ(error.requested, 101u);
  EXPECT_EQ(error.available, 100u);
  EXPECT_THROW(arena_.reserve(~Bytes{0}), OutOfMemory);
  EXPECT_EQ(arena_.in_use(), 1_MiB - 100);
  EXPECT_EQ(arena_.peak(), 1_MiB - 100);
  first = {};
  EXPECT_EQ(arena_.reserve(1_MiB).size(), 1_MiB);
}

TEST_P(StoreConformance, ReturnsAMovedRegionOnce) {
  auto a = arena_.reserve(1000);
  fill(a.data(), 1000, 2);
  std::byte* const data = a.data();
  HostArena::Region b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: the moved-from region is empty
  EXPECT_EQ(b.data(), data);
  auto c = arena_.reserve(500);
  c = std::move(b);
  EXPECT_TRUE(is_filled(c.data(), 1000, 2));
  EXPECT_EQ(arena_.in_use(), 1000u);
  c = {};
  EXPECT_EQ(arena_.in_use(), 0u);
}

TEST_P(StoreConformance, CountsThePeakOfSimultaneousRegions) {
  {
    const auto a = arena_.reserve(1000);
    auto b = arena_.reserve(2000);
    b = {};
    const auto c = arena_.reserve(500);
    EXPECT_EQ(arena_.in_use(), 1500u);
  }
  EXPECT_EQ(arena_.peak(), 3000u);
}

TEST_P(StoreConformance, LimitsAllThreadsToTheBudget) {
  std::vector<int> granted(4);
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < 100; ++i) {
          try {
            const auto region = arena_.reserve(400'000);  // room for two
            fill(region.data(), 1000, t);
            EXPECT_TRUE(is_filled(region.data(), 1000, t));
            ++granted[t];
          } catch (const OutOfMemory& error) {
            EXPECT_EQ(error.tier, Tier::host);
          }
        }
      });
    }
  }
  EXPECT_GT(std::accumulate(granted.begin(), granted.end(), 0), 0);
  EXPECT_EQ(arena_.in_use(), 0u);
  EXPECT_LE(arena_.peak(), 800'000u);
}

}  // namespace spillway
