#include "core/device/range_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

namespace spillway {
namespace {

using End = RangeAllocator::End;

/// A naive allocator with the same contract: one flag per unit of kAlignment bytes.
class NaiveAllocator {
 public:
  explicit NaiveAllocator(Bytes capacity) : taken_(capacity / kAlignment, false) {}

  std::optional<Bytes> allocate(Bytes bytes, End end) {
    const std::size_t units = bytes == 0 ? 1 : (bytes + kAlignment - 1) / kAlignment;
    if (units > taken_.size()) return std::nullopt;
    const std::size_t places = taken_.size() - units + 1;
    for (std::size_t i = 0; i < places; ++i) {
      const std::size_t at = end == End::low ? i : places - 1 - i;
      if (!is_free(at, units)) continue;
      set(at, units, true);
      return at * kAlignment;
    }
    return std::nullopt;
  }

  void free(Bytes offset, Bytes bytes) {
    set(offset / kAlignment, bytes == 0 ? 1 : (bytes + kAlignment - 1) / kAlignment, false);
  }

  Bytes used() const {
    Bytes units = 0;
    for (const bool taken : taken_) units += taken;
    return units * kAlignment;
  }

  Bytes largest_hole() const {
    Bytes run = 0, largest = 0;
    for (const bool taken : taken_) {
      run = taken ? 0 : run + 1;
      largest = std::max(largest, run);
    }
    return largest * kAlignment;
  }

 private:
  bool is_free(std::size_t at, std::size_t units) const {
    for (std::size_t i = at; i < at + units; ++i) {
      if (taken_[i]) return false;
    }
    return true;
  }
  void set(std::size_t at, std::size_t units, bool taken) {
    for (std::size_t i = at; i < at + units; ++i) taken_[i] = taken;
  }

  std::vector<bool> taken_;
};

constexpr Bytes kUnit = kAlignment;

TEST(RangeAllocator, AllocatesFromTheChosenEnd) {
  RangeAllocator ranges(16 * kUnit);
  EXPECT_EQ(ranges.allocate(kUnit + 1), 0u);
  EXPECT_EQ(ranges.allocate(kUnit), 2 * kUnit);
  EXPECT_EQ(ranges.allocate(2 * kUnit, End::high), 14 * kUnit);
  ranges.free(0, kUnit + 1);
  EXPECT_EQ(ranges.allocate(2 * kUnit + 1), 3 * kUnit) << "the hole at 0 is one unit too small";
  EXPECT_EQ(ranges.allocate(2 * kUnit), 0u);
  ranges.check_integrity();
}

TEST(RangeAllocator, ReturnsNothingIfNoHoleFits) {
  RangeAllocator ranges(4 * kUnit);
  EXPECT_FALSE(ranges.allocate(4 * kUnit + 1).has_value());
  EXPECT_FALSE(ranges.allocate(~Bytes{0}).has_value());
  EXPECT_FALSE(ranges.allocate(~Bytes{0} - kUnit + 2, End::high).has_value());
  EXPECT_EQ(ranges.used(), 0u);
  EXPECT_EQ(ranges.allocate(4 * kUnit), 0u);
  EXPECT_FALSE(ranges.allocate(1).has_value());
  EXPECT_EQ(ranges.largest_hole(), 0u);
}

TEST(RangeAllocator, MergesNeighbouringHoles) {
  RangeAllocator ranges(4 * kUnit);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(ranges.allocate(kUnit).has_value());
  ranges.free(kUnit, kUnit);
  ranges.free(3 * kUnit, kUnit);
  EXPECT_EQ(ranges.largest_hole(), kUnit);
  ranges.free(2 * kUnit, kUnit);
  EXPECT_EQ(ranges.largest_hole(), 3 * kUnit);
  EXPECT_EQ(ranges.allocate(3 * kUnit), kUnit);
}

TEST(RangeAllocator, GivesEmptyRangesDistinctOffsets) {
  RangeAllocator ranges(2 * kUnit);
  EXPECT_EQ(ranges.allocate(0), 0u);
  EXPECT_EQ(ranges.allocate(0), kUnit);
  EXPECT_FALSE(ranges.allocate(0).has_value());
}

TEST(RangeAllocator, CopiesIndependently) {
  RangeAllocator ranges(2 * kUnit);
  ASSERT_TRUE(ranges.allocate(kUnit).has_value());
  RangeAllocator copy = ranges;
  copy.free(0, kUnit);
  EXPECT_EQ(ranges.used(), kUnit);
  EXPECT_EQ(copy.used(), 0u);
}

/// Random allocations and frees, each compared with the naive model.
void compare_with_naive(Bytes capacity, unsigned seed) {
  std::mt19937 random(seed);
  RangeAllocator ranges(capacity);
  NaiveAllocator naive(capacity);
  std::map<Bytes, Bytes> live;
  for (int i = 0; i < 2000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const Bytes bytes = random() % (random() % 8 == 0 ? capacity + kUnit : 6 * kUnit);
      const End end = random() % 2 == 0 ? End::low : End::high;
      const auto offset = ranges.allocate(bytes, end);
      ASSERT_EQ(offset, naive.allocate(bytes, end));
      if (offset) live.emplace(*offset, bytes);
    } else {
      const auto victim =
          std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      ranges.free(victim->first, victim->second);
      naive.free(victim->first, victim->second);
      live.erase(victim);
    }
    ranges.check_integrity();
    ASSERT_EQ(ranges.used(), naive.used());
    ASSERT_EQ(ranges.largest_hole() / kAlignment * kAlignment, naive.largest_hole());
  }
}

TEST(RangeAllocator, AgreesWithANaiveModel) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    compare_with_naive(64 * kUnit, seed);
    compare_with_naive(78 * kUnit + 8, seed);
  }
}

}  // namespace
}  // namespace spillway
