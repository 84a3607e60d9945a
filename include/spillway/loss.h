#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>

#include "spillway/metric.h"

namespace spillway {

/// The loss of one virtual node. The loss of a step is the total `sum` of its virtual nodes divided
/// by their total `weight`.
struct LossSum {
  at::Tensor sum;     ///< over the examples, f32, without dimensions
  double weight = 0;  ///< number of the examples, or their total weight
};

/// Computes a loss from tensors [B, ...]. Any thread may call it at any time, so it must depend on
/// its inputs alone.
using LossFunction = std::function<LossSum(std::span<const at::Tensor> inputs)>;

/// Cross entropy of logits [B, ..., C] and classes [B, ...] below C; weight: number of classes.
LossSum cross_entropy(std::span<const at::Tensor> logits_and_classes);

/// Squared error of two tensors of the same shape; weight: number of elements.
LossSum squared_error(std::span<const at::Tensor> values_and_targets);

/// A metric of a model of your own. It reads what the loss reads.
struct Metric {
  MetricSpec spec;  ///< its name, the number of its sums, its value
  /// Sums over the examples of a virtual node: f32 or f64 [spec.num_sums]. Null without sums. Any
  /// thread may call it at any time, so it must depend on its inputs alone.
  std::function<at::Tensor(std::span<const at::Tensor> inputs)> sums;
};

/// A mean, like a loss: the total `sum` divided by the total `weight`.
Metric mean_metric(std::string name, LossFunction function);

/// "accuracy": the share of the classes [B, ...] that have the largest of the logits [B, ..., C];
/// of equal logits the first counts. Reads what cross_entropy() reads.
Metric accuracy();

/// "perplexity": e to the power of the mean loss.
Metric perplexity();

/// "r2": the coefficient of determination over all elements, 1 - (sum of squared errors) / (sum of
/// squared deviations of the targets from their mean). Reads what squared_error() reads.
Metric r_squared();

}  // namespace spillway
