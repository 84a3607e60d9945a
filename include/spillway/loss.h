#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

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

}  // namespace spillway
