#pragma once

#include <ATen/core/Tensor.h>

#include "spillway/spec.h"

namespace spillway {

/// LibTorch's name of a type.
at::ScalarType scalar_type(DType dtype);

/// Makes the layers of a model compute with `dtype`, f32 or bf16: parameters and the tensors
/// between layers. Running statistics and parameters that keep their type stay as they are, and so
/// does a model that has bf16 tensors already: it is made for bf16. A model of which all parameters
/// keep their type is made for f32. Throws ConfigError (`train.dtype`) if the model is made for the
/// other type.
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
