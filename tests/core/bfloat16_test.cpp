#include "core/bfloat16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/kernels.h"
#include "tests/core/isa_levels.h"

namespace spillway::kernels {
namespace {

const RandomKey kKey{.seed = 0x123456789ABCDEF0u, .step = 7, .vn = 3, .stream = 0x25};

std::vector<float> random_values(std::size_t n, std::uint32_t stream) {
  std::vector<float> x(n);
  fill_normal(x.data(), n, 1, RandomKey{.seed = 99, .stream = stream});
  return x;
}

std::vector<BFloat16> narrowed(const std::vector<float>& x) {
  std::vector<BFloat16> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = to_bfloat16(x[i]);
  return out;
}

/// Halves around which values are rounded: every sign and exponent, every fraction.
constexpr std::uint32_t kHalves = 1u << 16;

TEST(BFloat16, WideIsTheSameNumberAndNarrowsToItself) {
  for (std::uint32_t bits = 0; bits < kHalves; ++bits) {
    const BFloat16 x{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(x);
    if (std::isnan(wide)) {
      EXPECT_EQ(to_bfloat16(wide), BFloat16{0x7FC0});
    } else {
      ASSERT_EQ(to_bfloat16(wide), x) << bits;
    }
  }
}

/// By distances in double, between each number and the next.
TEST(BFloat16, NarrowIsTheNearestAndOfTwoTheEven) {
  for (std::uint32_t bits = 0; bits + 1 < 0x7F80; ++bits) {
    const BFloat16 below{static_cast<std::uint16_t>(bits)},
        above{static_cast<std::uint16_t>(bits + 1)};
    const double low = to_float(below), high = to_float(above);
    for (const std::uint32_t rest : {0x1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float x = std::bit_cast<float>(bits << 16 | rest);
      const double to_low = x - low, to_high = high - x;
      const bool is_tie = to_low == to_high;
      const bool takes_low = is_tie ? bits % 2 == 0 : to_low < to_high;
      ASSERT_EQ(to_bfloat16(x), takes_low ? below : above) << bits << " " << rest;
      ASSERT_EQ(to_bfloat16(-x).bits, to_bfloat16(x).bits | 0x8000) << bits;
    }
  }
}

TEST(BFloat16, TooLargeIsInfinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()), BFloat16{0x7F80});
  EXPECT_EQ(to_bfloat16(-kInfinity), BFloat16{0xFF80});
}

TEST(BFloat16, EveryLevelGivesTheBitsOfTheContract) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      auto x = random_values(n, 1);
      if (n > 3) x[3] = std::numeric_limits<float>::quiet_NaN();
      std::vector<BFloat16> narrow_x(n);
      narrow(narrow_x.data(), x.data(), n);
      ASSERT_EQ(narrow_x, narrowed(x)) << n;

      if (n > 3) narrow_x[3] = {};
      std::vector<float> wide(n);
      auto sum = random_values(n, 2);
      auto expected = sum;
      widen(wide.data(), narrow_x.data(), n);
      add(sum.data(), narrow_x.data(), n);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(wide[i], to_float(narrow_x[i])) << n;
        expected[i] = expected[i] + wide[i];
      }
      ASSERT_EQ(sum, expected) << n;
    }
  }
}

TEST(BFloat16, DropoutIsThatOfFloatsRoundedOnce) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      const auto x = narrowed(random_values(n, 3));
      std::vector<float> wide(n);
      widen(wide.data(), x.data(), n);
      dropout(wide.data(), wide.data(), n, 0.3f, kKey);
      std::vector<BFloat16> out(n + 64, BFloat16{7});
      dropout(out.data(), x.data(), n, 0.3f, kKey);
      auto expected = narrowed(wide);
      expected.resize(n + 64, BFloat16{7});
      ASSERT_EQ(out, expected) << n << " elements, level " << static_cast<int>(isa);
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
