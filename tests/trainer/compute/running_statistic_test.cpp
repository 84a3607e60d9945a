#include "trainer/compute/running_statistic.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace spillway {
namespace {

using Kind = StatisticSpec::Kind;

ParamSpec average(std::optional<double> momentum) {
  return {.name = "mean",
          .tensor = {DType::f32, {{"channel", 2}}},
          .trainable = false,
          .statistic = {Kind::average, momentum}};
}

/// Observations [2] of virtual nodes, summed.
std::vector<float> after(const ParamSpec& spec, std::vector<float> value,
                         const std::vector<float>& sum, int virtual_nodes, std::int64_t steps) {
  update_statistic(reinterpret_cast<std::byte*>(value.data()), spec, sum.data(), 2, virtual_nodes,
                   steps);
  return value;
}

TEST(RunningStatistic, IsUpdatedWithTheMeanOverVirtualNodes) {
  const std::vector<float> sum{8, -4};
  EXPECT_EQ(after(average(0.25), {4, 4}, sum, 4, 9), (std::vector<float>{3.5f, 2.75f}));
  EXPECT_EQ(after(average(1), {4, 4}, sum, 4, 9), (std::vector<float>{2, -1}));
  EXPECT_EQ(after(average(0), {4, 4}, sum, 4, 9), (std::vector<float>{4, 4}));
}

TEST(RunningStatistic, IsTheMeanOverStepsWithoutMomentum) {
  std::vector<float> value{100, 100};
  value = after(average(std::nullopt), value, {2, 6}, 2, 1);
  EXPECT_EQ(value, (std::vector<float>{1, 3})) << "of the first step alone";
  value = after(average(std::nullopt), value, {6, 2}, 2, 2);
  EXPECT_EQ(value, (std::vector<float>{2, 2}));
}

TEST(RunningStatistic, CountsSteps) {
  const ParamSpec spec{
      .name = "n", .tensor = {DType::i64, {}}, .trainable = false, .statistic = {Kind::count}};
  std::int64_t count = 3;
  update_statistic(reinterpret_cast<std::byte*>(&count), spec, nullptr, 1, 8, 12);
  EXPECT_EQ(count, 12);
}

}  // namespace
}  // namespace spillway
