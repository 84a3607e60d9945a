#pragma once

#include <ATen/core/Tensor.h>

#include "spillway/model.h"

namespace spillway {

/// Zeroes elements of `x` (fp32 or bf16) with probability `p`, 0 <= p < 1, and scales the others by
/// 1 / (1 - p). The mask is a function of the context's key and of the element's position alone
/// (core/device/kernels.h), so the backward recomputes it instead of saving it. `draw` numbers the
/// draws of a layer, below 16. Outside training, and for p = 0, the result is `x` itself.
at::Tensor dropout(const at::Tensor& x, double p, const LayerContext& context,
                   std::uint32_t draw = 0);

}  // namespace spillway
