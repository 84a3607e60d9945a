#include "models/base/cross_entropy.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <utility>

namespace spillway {
namespace {

using Loss = std::function<at::Tensor(const at::Tensor& logits)>;

std::pair<at::Tensor, at::Tensor> with_gradient(const at::Tensor& values, const Loss& loss) {
  const at::Tensor logits = values.detach().clone().requires_grad_();
  const at::Tensor sum = loss(logits);
  return {sum, torch::autograd::grad({sum}, {logits})[0]};
}

TEST(CrossEntropy, HasTheBitsOfLibTorch) {
  for (const auto& [rows, classes] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 2}, {5, 7}, {32, 1000}, {40, 49152}}) {
    for (const double smoothing : {0.0, 0.1}) {
      const at::Tensor values = at::randn({rows, classes}).mul(5);
      const at::Tensor targets = at::randint(classes, {rows}, at::kLong);
      if (rows > 1) targets[0].fill_(-100);
      const auto ours = with_gradient(
          values, [&](const auto& x) { return cross_entropy_of(x, targets, -100, smoothing); });
      const auto theirs = with_gradient(values, [&](const auto& x) {
        return at::cross_entropy_loss(x, targets, {}, at::Reduction::Sum, -100, smoothing);
      });
      EXPECT_TRUE(at::equal(ours.first, theirs.first)) << rows << " x " << classes;
      EXPECT_TRUE(at::equal(ours.second, theirs.second)) << rows << " x " << classes;
      if (rows == 1) continue;
      const auto ignoring_none = with_gradient(values, [&](const auto& x) {
        return cross_entropy_of(x, targets.clamp_min(0), -100, smoothing);
      });
      EXPECT_FALSE(at::equal(ignoring_none.second, theirs.second)) << rows << " x " << classes;
    }
  }
}

}  // namespace
}  // namespace spillway
