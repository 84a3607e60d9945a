#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <numbers>

#include "core/device/cpu/kernel_table.h"
#include "core/device/kernels.h"

// Uses only + - * / and sqrt, which IEEE 754 rounds correctly. log, sin and cos of a C library
// differ between versions and between processors with and without fma.
namespace spillway::kernels {
namespace {

/// log(u), 0 < u <= 1: exponent * log(2) + 2 artanh((m - 1) / (m + 1)), m in [sqrt(1/2), sqrt(2)].
double log_of(double u) {
  constexpr int kTerms = 11;
  const auto bits = std::bit_cast<std::uint64_t>(u);
  double exponent = static_cast<double>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > std::numbers::sqrt2) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 1.0 / (2 * kTerms + 1);
  for (int k = kTerms - 1; k >= 0; --k) series = series * s2 + 1.0 / (2 * k + 1);
  return exponent * std::numbers::ln2 + 2 * s * series;
}

struct Direction {
  double cos, sin;
};

/// Cosine and sine of word / 2^32 turns, by Taylor series within an eighth of a turn.
Direction direction_of(std::uint32_t word) {
  const std::uint32_t quarter = (word + 0x20000000u) >> 30;  // the nearest, of 0..3
  const auto rest = static_cast<std::int32_t>(word - (quarter << 30));
  const double x = static_cast<double>(rest) * (2 * std::numbers::pi * 0x1p-32), x2 = x * x;
  double c = 1, s = 1;
  for (int k = 8; k >= 1; --k) {
    c = 1 - c * x2 * (1.0 / (2 * k * (2 * k - 1)));
    s = 1 - s * x2 * (1.0 / (2 * k * (2 * k + 1)));
  }
  s *= x;
  const std::array<Direction, 4> turned{{{c, s}, {-s, c}, {-c, -s}, {s, -c}}};
  return turned[quarter];
}

/// Two independent standard normals. Source: Box and Muller, 1958.
Direction normal_pair(std::uint32_t radius_word, std::uint32_t angle_word) {
  const double u = (static_cast<double>(radius_word) + 1) * 0x1p-32;
  const double radius = std::sqrt(-2 * log_of(u));
  const Direction d = direction_of(angle_word);
  return {radius * d.cos, radius * d.sin};
}

}  // namespace

void fill_normal(float* x, std::size_t n, double stddev, const RandomKey& key) {
  assert(n / 4 <= 0xFFFFFFFFu);
  for (std::size_t i = 0; i < n; i += 4) {
    const auto words = philox(detail::counter_of(key, static_cast<std::uint32_t>(i / 4)), key.seed);
    const Direction a = normal_pair(words[0], words[1]), b = normal_pair(words[2], words[3]);
    const std::array<double, 4> values{a.cos, a.sin, b.cos, b.sin};
    for (std::size_t j = 0; j < 4 && i + j < n; ++j) {
      x[i + j] = static_cast<float>(stddev * values[j]);
    }
  }
}

}  // namespace spillway::kernels
