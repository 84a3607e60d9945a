#pragma once

#include <cstddef>

#include "core/kernels.h"
#include "core/spec.h"

namespace spillway {

/// Adds to a sum in f32 what one virtual node has for it: a gradient or an observation of the type
/// and shape of `tensor` (f32 or bf16); null: zero. `fresh`: the sum begins with it. Both are where
/// the stream computes.
void add_term(kernels::Stream stream, float* sum, const std::byte* term, const TensorSpec& tensor,
              bool fresh);

}  // namespace spillway
