#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "spillway/loss.h"

namespace spillway::testing {
namespace {

double value(const Metric& metric, double loss, const at::Tensor& outputs,
             const at::Tensor& targets) {
  std::vector<double> sums;
  if (metric.sums) {
    const auto tensor = metric.sums(std::array{outputs, targets}).to(at::kDouble);
    sums.assign(tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel());
  }
  EXPECT_EQ(std::ssize(sums), metric.spec.num_sums);
  return metric.spec.value(loss, sums);
}

TEST(Metrics, CountTheLargestLogitsForAccuracy) {
  const auto logits = at::tensor({1., 3., 2., 5., 5., 0., 0., 0., 1.}).view({3, 3});
  EXPECT_EQ(value(accuracy(), 0, logits, at::tensor({1, 0, 0})), 2. / 3);
  EXPECT_EQ(value(accuracy(), 0, logits, at::tensor({1, 1, 2})), 2. / 3) << "the first counts";
  const auto tokens = at::randn({2, 4, 5});  // [B, T, C] and [B, T]
  EXPECT_EQ(value(accuracy(), 0, tokens, tokens.argmax(-1)), 1);
}

TEST(Metrics, ComputePerplexityFromTheLoss) {
  EXPECT_EQ(value(perplexity(), 1.25, {}, {}), std::exp(1.25));
}

TEST(Metrics, CompareWithTheMeanForRSquared) {
  const auto targets = at::tensor({1., 2., 3., 6.}), outputs = at::tensor({1., 2., 4., 5.});
  EXPECT_DOUBLE_EQ(value(r_squared(), 0, outputs, targets), 1 - 2. / 14);
  EXPECT_DOUBLE_EQ(value(r_squared(), 0, at::full({4}, 3.), targets), 0);
}

TEST(Metrics, DivideALossByItsWeight) {
  const Metric metric = mean_metric("error", &squared_error);
  EXPECT_EQ(metric.spec.name, "error");
  EXPECT_EQ(value(metric, 0, at::tensor({1.f, 2.f}), at::tensor({1.f, 4.f})), 2);
}

}  // namespace
}  // namespace spillway::testing
