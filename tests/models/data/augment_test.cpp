#include "spillway/augment.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <vector>

namespace spillway {
namespace {

using Row = std::array<std::int64_t, 7>;

/// 2 x 3 pixels and a label.
constexpr Row kRow{1, 2, 3, 4, 5, 6, 9};

Row shifted(const PhiloxBlock& words) {
  Row row = kRow;
  shift_pictures(2, 3)(std::as_writable_bytes(std::span(row)), words);
  return row;
}

/// The random word that gives -1, 0 or 1.
constexpr std::uint32_t word(int shift) {
  return 0x2AAAAAAAu + 0x55555555u * static_cast<std::uint32_t>(shift + 1);
}

TEST(Augment, ShiftsThePictureButNotTheLabel) {
  EXPECT_EQ(shifted({word(0), word(0), 1, 2}), kRow);
  EXPECT_EQ(shifted({word(1), word(0), 1, 2}), (Row{0, 0, 0, 1, 2, 3, 9}));
  EXPECT_EQ(shifted({word(-1), word(0), 1, 2}), (Row{4, 5, 6, 0, 0, 0, 9}));
  EXPECT_EQ(shifted({word(0), word(1), 1, 2}), (Row{0, 1, 2, 0, 4, 5, 9}));
  EXPECT_EQ(shifted({word(0), word(-1), 1, 2}), (Row{2, 3, 0, 5, 6, 0, 9}));
  EXPECT_EQ(shifted({word(1), word(1), 1, 2}), (Row{0, 0, 0, 0, 1, 2, 9}));
}

TEST(Augment, DrawsSeparatelyForEverySampleAndStep) {
  std::set<PhiloxBlock> seen;
  for (std::uint64_t seed : {1u, 2u}) {
    for (std::int64_t step : {0, 1}) {
      for (int vn : {0, 1}) {
        for (std::int64_t sample : {0, 1}) {
          seen.insert(augment_words(seed, step, vn, sample));
          EXPECT_EQ(augment_words(seed, step, vn, sample), augment_words(seed, step, vn, sample));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 16u);
}

TEST(Augment, DrawsTheNineShiftsUniformly) {
  std::map<Row, int> counts;
  constexpr int kDraws = 9000;
  for (int i = 0; i < kDraws; ++i) ++counts[shifted(augment_words(5, 3, 2, i))];
  EXPECT_EQ(counts.size(), 9u);
  for (const auto& [row, count] : counts) EXPECT_NEAR(count, kDraws / 9, 150);
}

}  // namespace
}  // namespace spillway
