#pragma once

#include <ATen/core/Tensor.h>

namespace spillway {

/// at::cross_entropy_loss of `logits` [N, C] and `classes` [N], summed, bit for bit. On a CPU its
/// backward writes the gradient of the logits over that of their logarithms: a large vocabulary
/// needs one tensor [N, C] less.
at::Tensor cross_entropy_of(const at::Tensor& logits, const at::Tensor& classes,
                            std::int64_t ignore_index, double label_smoothing);

}  // namespace spillway
