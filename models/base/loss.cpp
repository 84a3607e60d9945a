#include "spillway/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

namespace spillway {

LossSum cross_entropy(std::span<const at::Tensor> logits_and_classes) {
  const at::Tensor classes = logits_and_classes[1].reshape({-1}).to(at::kLong);
  const at::Tensor logits = logits_and_classes[0].reshape({classes.numel(), -1});
  return {.sum = at::cross_entropy_loss(logits, classes, {}, at::Reduction::Sum),
          .weight = static_cast<double>(classes.numel())};
}

LossSum squared_error(std::span<const at::Tensor> values_and_targets) {
  const at::Tensor& values = values_and_targets[0];
  return {
      .sum = at::mse_loss(values, values_and_targets[1].view(values.sizes()), at::Reduction::Sum),
      .weight = static_cast<double>(values.numel())};
}

}  // namespace spillway
