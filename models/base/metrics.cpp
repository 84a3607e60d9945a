#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <utility>

#include "spillway/loss.h"

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;
using Sums = std::span<const double>;

/// f64 [2]
at::Tensor with_weight(const at::Tensor& sum, double weight) {
  const at::Tensor total = sum.to(at::kDouble);
  return at::stack({total, at::full({}, weight, total.options())});
}

double mean(double, Sums sums) { return sums[0] / sums[1]; }

at::Tensor right_classes(Tensors logits_and_classes) {
  const at::Tensor &logits = logits_and_classes[0], &classes = logits_and_classes[1];
  const at::Tensor guesses = at::argmax(logits, -1);
  return with_weight(guesses.eq(classes.view_as(guesses)).sum(),
                     static_cast<double>(guesses.numel()));
}

/// f64 [4]: squared errors, targets, squared targets, number of elements
at::Tensor squares(Tensors values_and_targets) {
  const at::Tensor values = values_and_targets[0].to(at::kDouble);
  const at::Tensor targets = values_and_targets[1].to(at::kDouble).view_as(values);
  return at::stack({values.sub(targets).square().sum(), targets.sum(), targets.square().sum(),
                    at::full({}, values.numel(), values.options())});
}

}  // namespace

Metric mean_metric(std::string name, LossFunction function) {
  return {.spec = {.name = std::move(name), .num_sums = 2, .value = &mean},
          .sums = [function = std::move(function)](Tensors inputs) {
            const LossSum loss = function(inputs);
            return with_weight(loss.sum, loss.weight);
          }};
}

Metric accuracy() {
  return {.spec = {.name = "accuracy", .num_sums = 2, .value = &mean}, .sums = &right_classes};
}

Metric perplexity() {
  return {.spec = {.name = "perplexity", .value = [](double loss, Sums) { return std::exp(loss); }},
          .sums = nullptr};
}

Metric r_squared() {
  return {.spec = {.name = "r2",
                   .num_sums = 4,
                   .value =
                       [](double, Sums sums) {
                         return 1 - sums[0] / (sums[2] - sums[1] * sums[1] / sums[3]);
                       }},
          .sums = &squares};
}

}  // namespace spillway
