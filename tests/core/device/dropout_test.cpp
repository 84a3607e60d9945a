#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/device/kernels.h"
#include "tests/core/device/isa_levels.h"

namespace spillway::kernels {
namespace {

const RandomKey kKey{.seed = 0x123456789ABCDEF0u, .step = 7, .vn = 3, .stream = 0x25};

/// The contract, element by element.
float expected(float x, std::size_t i, float p, const RandomKey& key) {
  const auto words =
      philox({static_cast<std::uint32_t>(i / 4), key.vn, key.stream, key.step}, key.seed);
  const bool keep = words[i % 4] >= std::round(static_cast<double>(p) * 4294967296.0);
  return keep ? x * static_cast<float>(1.0 / (1.0 - static_cast<double>(p))) : 0.0f;
}

std::vector<float> ramp(std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) * 0.37f - 11.0f;
  return x;
}

std::vector<float> dropped(const std::vector<float>& x, float p, const RandomKey& key) {
  std::vector<float> out(x.size(), -1.0f);
  dropout(out.data(), x.data(), x.size(), p, key);
  return out;
}

TEST(Dropout, GivesTheDocumentedBitsOnEveryLevel) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      const auto x = ramp(n);
      std::vector<float> reference(n);
      for (std::size_t i = 0; i < n; ++i) reference[i] = expected(x[i], i, 0.3f, kKey);
      ASSERT_EQ(bits(dropped(x, 0.3f, kKey)), bits(reference))
          << n << " elements, level " << static_cast<int>(isa);
    }
  }
}

TEST(Dropout, AgreesOnEveryLevelForEveryProbability) {
  const auto x = ramp(1000);
  for (const float p : {0.0f, 1e-12f, 1e-9f, 0.1f, 0.5f, 0.99f, std::nextafter(1.0f, 0.0f)}) {
    std::vector<float> reference(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) reference[i] = expected(x[i], i, p, kKey);
    for (const Isa isa : isa_levels()) {
      const IsaLimit limit(isa);
      EXPECT_EQ(bits(dropped(x, p, kKey)), bits(reference)) << p;
    }
  }
}

TEST(Dropout, KeepsAWordEqualToTheThreshold) {
  constexpr std::size_t kN = 2048;
  int num_found = 0;
  for (std::size_t i = 0; i < kN; ++i) {
    const auto words =
        philox({static_cast<std::uint32_t>(i / 4), kKey.vn, kKey.stream, kKey.step}, kKey.seed);
    const float p = static_cast<float>(words[i % 4]) * 0x1p-32f;
    if (static_cast<double>(p) * 0x1p32 != words[i % 4]) continue;  // not exact in float
    ++num_found;
    for (const Isa isa : isa_levels()) {
      const IsaLimit limit(isa);
      for (const std::size_t n : {i + 1, kN}) {  // in the tail and in a whole vector
        const std::vector<float> x(n, 1.0f);
        EXPECT_NE(dropped(x, p, kKey)[i], 0.0f);
        EXPECT_EQ(dropped(x, std::nextafter(p, 1.0f), kKey)[i], 0.0f);
      }
    }
  }
  EXPECT_GT(num_found, 3);
}

TEST(Dropout, WritesNothingPastTheEnd) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (std::size_t n = 0; n <= 70; ++n) {
      const auto x = ramp(n);
      std::vector<float> out(n + 64, 5.0f);
      dropout(out.data(), x.data(), n, 0.5f, kKey);
      for (std::size_t i = n; i < out.size(); ++i) ASSERT_EQ(out[i], 5.0f) << n;
    }
  }
}

TEST(Dropout, WorksInPlaceAndUnaligned) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    const auto x = ramp(333);
    const auto reference = dropped(x, 0.4f, kKey);
    std::vector<float> shifted(x.size() + 1);
    std::copy(x.begin(), x.end(), shifted.begin() + 1);
    dropout(shifted.data() + 1, shifted.data() + 1, x.size(), 0.4f, kKey);
    EXPECT_EQ(bits({shifted.begin() + 1, shifted.end()}), bits(reference));
  }
}

TEST(Dropout, ZeroesDroppedElementsWhateverTheirValue) {
  const std::vector<float> x(1000, std::numeric_limits<float>::quiet_NaN());
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    const auto out = dropped(x, 0.5f, kKey);
    EXPECT_GT(std::count(out.begin(), out.end(), 0.0f), 400);
  }
}

TEST(Dropout, DependsOnEveryPartOfTheKey) {
  const std::vector<float> ones(4096, 1.0f);
  const auto base = dropped(ones, 0.5f, kKey);
  EXPECT_EQ(dropped(ones, 0.5f, kKey), base);
  std::vector<RandomKey> others(5, kKey);
  others[0].seed += 1;
  others[1].seed += 1ull << 32;
  others[2].step += 1;
  others[3].vn += 1;
  others[4].stream += 1;
  for (const RandomKey& other : others) {
    const auto mask = dropped(ones, 0.5f, other);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) equal += mask[i] == base[i];
    EXPECT_NEAR(static_cast<double>(equal), 2048, 6 * 32) << "independent masks agree by half";
  }
}

TEST(Dropout, KeepsShareAndExpectation) {
  constexpr std::size_t kN = 1 << 20;
  const std::vector<float> ones(kN, 1.0f);
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const auto out = dropped(ones, p, kKey);
    double kept = 0, sum = 0;
    for (const float x : out) {
      kept += x != 0;
      sum += static_cast<double>(x);
    }
    const double q = 1 - static_cast<double>(p), sigma = std::sqrt(kN * q * (1 - q));
    EXPECT_NEAR(kept, kN * q, 5 * sigma);
    EXPECT_NEAR(sum, kN, 5 * sigma / q);
  }
}

TEST(Dropout, DrawsNeighboursIndependently) {
  constexpr std::size_t kN = 1 << 20;
  const auto out = dropped(std::vector<float>(kN, 1.0f), 0.5f, kKey);
  for (std::size_t distance = 1; distance <= 64; ++distance) {
    double both = 0;
    for (std::size_t i = 0; i + distance < kN; ++i) both += out[i] != 0 && out[i + distance] != 0;
    EXPECT_NEAR(both, kN / 4.0, 6 * std::sqrt(kN * 3 / 16.0)) << distance;
  }
}

}  // namespace
}  // namespace spillway::kernels
