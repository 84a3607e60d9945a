#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "spillway/data_source.h"

namespace spillway {
namespace {

using Order = std::vector<std::uint64_t>;

Order order_of(std::uint64_t epoch, std::uint64_t num_samples, std::uint64_t seed) {
  Order order;
  for (std::uint64_t i = 0; i < num_samples; ++i)
    order.push_back(sample_at(epoch * num_samples + i, num_samples, seed));
  return order;
}

TEST(SampleAt, ReadsEverySampleOnceAnEpoch) {
  for (const std::uint64_t n : {1u, 2u, 3u, 4u, 5u, 15u, 16u, 17u, 63u, 64u, 65u, 1000u}) {
    Order all(n);
    std::iota(all.begin(), all.end(), 0);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      auto order = order_of(epoch, n, 9);
      std::ranges::sort(order);
      EXPECT_EQ(order, all) << n << " samples, epoch " << epoch;
    }
  }
}

TEST(SampleAt, KeepsItsOrder) {
  // Computed independently of this implementation.
  EXPECT_EQ(order_of(0, 10, 1), (Order{4, 1, 5, 7, 8, 2, 6, 0, 9, 3}));
  EXPECT_EQ(order_of(1, 10, 1), (Order{6, 2, 3, 5, 8, 0, 4, 9, 1, 7}));
  constexpr std::uint64_t kMany = std::uint64_t{1} << 40;
  EXPECT_EQ(sample_at(0, kMany, 7), 191101659040u);
  EXPECT_EQ(sample_at(kMany * 3 + 1, kMany, 7), 331566446925u);
}

TEST(SampleAt, DependsOnEpochAndSeed) {
  const auto base = order_of(0, 200, 5);
  EXPECT_EQ(order_of(0, 200, 5), base);
  const std::vector<Order> others{order_of(1, 200, 5), order_of(0, 200, 6),
                                  order_of(0, 200, 5 + (std::uint64_t{1} << 32)),
                                  order_of(std::uint64_t{1} << 32, 200, 5)};
  for (const auto& other : others) {
    int num_same = 0;
    for (std::size_t i = 0; i < base.size(); ++i) num_same += base[i] == other[i];
    EXPECT_LT(num_same, 10) << "unrelated orders agree in one place on average";
  }
}

TEST(SampleAt, DrawsTheFirstSampleUniformly) {
  constexpr std::uint64_t kSamples = 10, kSeeds = 20'000;
  std::vector<double> firsts(kSamples), seconds(kSamples);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    ++firsts[sample_at(0, kSamples, seed)];
    ++seconds[sample_at(kSamples + 1, kSamples, seed)];
  }
  const double mean = kSeeds / kSamples, sigma = std::sqrt(mean * 0.9);
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    EXPECT_NEAR(firsts[i], mean, 5 * sigma) << i;
    EXPECT_NEAR(seconds[i], mean, 5 * sigma) << i;
  }
}

TEST(SampleAt, CoversTheLargestSources) {
  const std::uint64_t n = (std::uint64_t{1} << 63) + 5;
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto sample = sample_at(i, n, 3);
    EXPECT_LT(sample, n);
    seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_LT(*seen.begin(), n / 20);
  EXPECT_GT(*seen.rbegin(), n - n / 20);
}

}  // namespace
}  // namespace spillway
