#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "core/cuda/kernel_bodies.h"
#include "tests/core/isa_levels.h"

/// What the threads of a GPU's kernels compute, one after the other on the CPU.
namespace spillway::kernels {
namespace {

const RandomKey kKey{.seed = 0x0FEDCBA987654321u, .step = 11, .vn = 5, .stream = 0x31};

std::vector<float> random_values(std::size_t n) {
  std::vector<float> x(n);
  fill_normal(x.data(), n, 3, kKey);
  return x;
}

std::vector<std::uint32_t> bits(const std::vector<float>& x) {
  std::vector<std::uint32_t> all;
  for (const float value : x) all.push_back(std::bit_cast<std::uint32_t>(value));
  return all;
}

/// As kernels.cu folds them.
double fold_of_lanes(std::vector<double> lane) {
  for (std::size_t apart = 1; apart < lane.size(); apart *= 2) {
    std::vector<double> sums(lane.size());
    for (std::size_t j = 0; j < lane.size(); ++j) sums[j] = lane[j] + lane[j ^ apart];
    lane = sums;
  }
  return lane[0];
}

double squared_norm_by_threads(const std::vector<float>& x) {
  double total = 0;
  for (std::size_t chunk = 0; chunk < num_norm_chunks(x.size()); ++chunk) {
    std::vector<double> lanes;
    for (std::size_t lane = 0; lane < detail::kNormLanes; ++lane) {
      lanes.push_back(detail::norm_lane(x.data() + chunk * kNormChunk,
                                        detail::elements_of_chunk(x.size(), chunk), lane));
    }
    total += fold_of_lanes(lanes);
  }
  return total;
}

TEST(GpuBodies, DropWhatTheCpuDrops) {
  for (const std::size_t n : awkward_sizes()) {
    for (const float p : {0.0f, 0.1f, 0.5f, 0.99f}) {
      const auto in = random_values(n);
      std::vector<float> cpu(n), gpu(n, -1.0f);
      dropout(cpu.data(), in.data(), n, p, kKey);
      const auto how = detail::settled(n, p, kKey);
      for (std::size_t block = 0; 4 * block < n; ++block) {
        detail::drop_block(gpu.data(), in.data(), n, block, how);
      }
      ASSERT_EQ(bits(gpu), bits(cpu)) << n << " elements, probability " << p;
    }
  }
}

TEST(GpuBodies, SumSquaresInTheOrderOfTheCpu) {
  for (const std::size_t n : awkward_sizes()) {
    const auto x = random_values(n);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(squared_norm_by_threads(x)),
              std::bit_cast<std::uint64_t>(squared_norm(x.data(), n)))
        << n;
  }
}

TEST(GpuBodies, RoundWhereTheCpuRounds) {
  auto sum = random_values(1000), expected = sum;
  const std::vector<float> term(sum.rbegin(), sum.rend());
  add_rounded(expected.data(), term.data(), term.size());
  std::vector<BFloat16> narrow_term(term.size());
  narrow(narrow_term.data(), term.data(), term.size());
  for (std::size_t i = 0; i < term.size(); ++i) {
    BFloat16 converted;
    detail::Convert()(converted, term[i]);
    ASSERT_EQ(converted, narrow_term[i]);
    detail::AddRounded()(sum[i], term[i]);
  }
  ASSERT_EQ(bits(sum), bits(expected));
}

TEST(GpuBodies, HaveNoElementsBehindTheLastChunk) {
  EXPECT_EQ(detail::elements_of_chunk(kNormChunk + 1, 0), kNormChunk);
  EXPECT_EQ(detail::elements_of_chunk(kNormChunk + 1, 1), 1u);
  EXPECT_EQ(detail::elements_of_chunk(kNormChunk + 1, 2), 0u);
  EXPECT_EQ(detail::elements_of_chunk(0, 0), 0u);
}

}  // namespace
}  // namespace spillway::kernels
