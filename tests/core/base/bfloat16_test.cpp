#include "core/base/bfloat16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/device/kernels.h"
#include "tests/core/device/isa_levels.h"

namespace spillway::kernels {
namespace {

const RandomKey kKey{.seed = 0x123456789ABCDEF0u, .step = 7, .vn = 3, .stream = 0x25};

std::vector<BFloat16> narrowed(const std::vector<float>& x) {
  std::vector<BFloat16> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = to_bfloat16(x[i]);
  return out;
}

/// Values around the midpoints of rounding: every sign and exponent, every fraction.
constexpr std::uint32_t kHalves = 1u << 16;

TEST(BFloat16, WidensExactlyAndNarrowsBack) {
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
TEST(BFloat16, RoundsToNearestEven) {
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

TEST(BFloat16, OverflowsToInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()), BFloat16{0x7F80});
  EXPECT_EQ(to_bfloat16(-kInfinity), BFloat16{0xFF80});
}

TEST(BFloat16, GivesTheDocumentedBitsOnEveryLevel) {
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

TEST(BFloat16, RoundsGradientSumsAsDocumented) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      auto sum = random_values(n, 4);
      const auto term = random_values(n, 5);
      auto narrow_sum = narrowed(sum);
      const auto narrow_term = narrowed(term);
      std::vector<float> expected(n);
      for (std::size_t i = 0; i < n; ++i) {
        expected[i] = to_float(narrow_sum[i]) + to_float(narrow_term[i]);
      }
      add_rounded(sum.data(), term.data(), n);
      ASSERT_EQ(sum, expected) << n;
      add(narrow_sum.data(), narrow_term.data(), n);
      ASSERT_EQ(narrow_sum, narrowed(expected)) << n;
    }
  }
}

TEST(BFloat16, TreatsGradientsAsTheirFloats) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      const auto g = narrowed(random_values(n, 6));
      std::vector<float> wide(n);
      widen(wide.data(), g.data(), n);
      ASSERT_EQ(squared_norm(g.data(), n), squared_norm(wide.data(), n)) << n;
      auto p = random_values(n, 7), m = random_values(n, 8), v = std::vector<float>(n, 0.5f);
      auto expected_p = p, expected_m = m, expected_v = v;
      const AdamW adam{.learning_rate = 3e-3f, .weight_decay = 0.1f, .gradient_scale = 0.37f};
      const Sgd descent{.learning_rate = 3e-2f, .weight_decay = 0.1f, .gradient_scale = 0.37f};
      adamw(p.data(), m.data(), v.data(), g.data(), n, adam);
      adamw(expected_p.data(), expected_m.data(), expected_v.data(), wide.data(), n, adam);
      sgd(p.data(), m.data(), g.data(), n, descent);
      sgd(expected_p.data(), expected_m.data(), wide.data(), n, descent);
      ASSERT_EQ(p, expected_p) << n;
      ASSERT_EQ(m, expected_m) << n;
      ASSERT_EQ(v, expected_v) << n;
    }
  }
}

TEST(BFloat16, RoundsDropoutOnce) {
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
