#pragma once

#include <ATen/core/Tensor.h>

#include "spillway/spec.h"

namespace spillway {

/// Makes the layers of a model compute with `dtype`, f32 or bf16: parameters and the tensors
/// between layers. Running statistics and parameters that keep their type stay as they are, and so
/// does a model that names bf16 itself. Throws ConfigError (`train.dtype`) if the model is made for
/// the other type: for bf16 if it names bf16 itself, for f32 if all of its parameters keep their
/// type.
void compute_with(ModelSpec& model, DType dtype);

/// Rounds finished sums of gradients to `dtype` (ParamSpec::gradient).
void send_gradients_as(ModelSpec& model, DType dtype);

/// Layer normalization over the last dimension, in f32, rounded to the type of `x` [..., C] at its
/// end. `weight`, `bias`: [C].
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps);

/// The sum of the cross entropies of `logits` [N, C] and `targets` [N], in f32.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace spillway
