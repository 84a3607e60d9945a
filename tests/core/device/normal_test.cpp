#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/device/kernels.h"
#include "tests/core/device/isa_levels.h"

namespace spillway::kernels {
namespace {

const RandomKey kNormalKey{.seed = 42, .step = 1, .vn = 2, .stream = 3};

std::vector<float> normals(std::size_t n, double stddev, const RandomKey& key) {
  std::vector<float> x(n);
  fill_normal(x.data(), n, stddev, key);
  return x;
}

/// Box-Muller by the C library, in long double.
long double box_muller(std::size_t i, const RandomKey& key) {
  const auto words =
      philox({static_cast<std::uint32_t>(i / 4), key.vn, key.stream, key.step}, key.seed);
  const std::size_t pair = i % 4 / 2 * 2;
  const long double u = (static_cast<long double>(words[pair]) + 1) * 0x1p-32L;
  const long double angle =
      2 * std::acos(-1.0L) * static_cast<long double>(words[pair + 1]) * 0x1p-32L;
  return std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(FillNormal, IsBoxMullerToTheLastBitOfFloat) {
  constexpr std::size_t kN = 100000;
  const auto x = normals(kN, 1, kNormalKey);
  for (std::size_t i = 0; i < kN; ++i) {
    const long double exact = box_muller(i, kNormalKey);
    const auto tolerance = std::max(std::abs(exact) * 0x1.01p-24L, 1e-14L);  // half a float ulp
    ASSERT_NEAR(static_cast<double>(static_cast<long double>(x[i]) - exact), 0,
                static_cast<double>(tolerance))
        << i;
  }
}

// Frozen: initial weights are part of a job's result, on every machine and in every version.
TEST(FillNormal, KeepsItsBits) {
  EXPECT_EQ(bits(normals(8, 0.02, kNormalKey)),
            (std::vector<std::uint32_t>{0xbbfe3eebu, 0xbc623f57u, 0x3b575f13u, 0xbb299cafu,
                                        0xbc2f148fu, 0xbcd4bca8u, 0xb9a0f869u, 0x3cb8a300u}));
}

TEST(FillNormal, HasTheSameBitsOnEveryInstructionSet) {
  const auto widest = bits(normals(1 << 20, 0.02, kNormalKey));
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    EXPECT_EQ(bits(normals(1 << 20, 0.02, kNormalKey)), widest) << static_cast<int>(isa);
  }
}

TEST(FillNormal, ExtendsAShorterDraw) {
  const auto whole = normals(64, 2, kNormalKey);
  for (std::size_t n = 0; n < 64; ++n) {
    const auto part = normals(n, 2, kNormalKey);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << n;
  }
}

TEST(FillNormal, DependsOnEveryPartOfTheKey) {
  const auto base = normals(4, 1, kNormalKey);
  std::vector<RandomKey> others(4, kNormalKey);
  others[0].seed += 1;
  others[1].step += 1;
  others[2].vn += 1;
  others[3].stream += 1;
  for (const RandomKey& other : others) {
    const auto x = normals(4, 1, other);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NE(x[i], base[i]);
  }
}

TEST(FillNormal, HasTheMomentsOfANormalDistribution) {
  constexpr std::size_t kN = 1 << 20;
  double moment[5] = {};
  for (const float value : normals(kN, 3, kNormalKey)) {
    double power = 1;
    for (double& sum : moment) {
      sum += power / kN;
      power *= static_cast<double>(value) / 3;
    }
  }
  const double sigma = 1 / std::sqrt(static_cast<double>(kN));
  EXPECT_NEAR(moment[1], 0, 5 * sigma);
  EXPECT_NEAR(moment[2], 1, 5 * sigma * std::sqrt(2.0));
  EXPECT_NEAR(moment[3], 0, 5 * sigma * std::sqrt(15.0));
  EXPECT_NEAR(moment[4], 3, 5 * sigma * std::sqrt(96.0));
}

TEST(FillNormal, HasNormalQuantiles) {
  constexpr std::size_t kN = 1 << 20;
  const auto x = normals(kN, 1, kNormalKey);
  for (const double z : {-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0}) {
    double below = 0;
    for (const float value : x) below += static_cast<double>(value) < z;
    const double p = 0.5 * std::erfc(-z / std::sqrt(2.0));
    EXPECT_NEAR(below, kN * p, 5 * std::sqrt(kN * p * (1 - p))) << z;
  }
}

}  // namespace
}  // namespace spillway::kernels
