#pragma once

#include <cstddef>

#include "core/device/kernels.h"
#include "spillway/spec.h"

namespace spillway {

/// Adds to a sum in f32 what one virtual node has for it: a gradient or an observation of the type
/// and shape of `tensor` (f32 or bf16); null: zero. `fresh`: the sum begins with it. Both are where
/// the stream computes.
void add_term(kernels::Stream stream, float* sum, const std::byte* term, const TensorSpec& tensor,
              bool fresh);

/// Adds a finished sum of the parameter to another, both where the stream computes: both are
/// rounded before where the parameter's finished sums are.
void merge_sum(kernels::Stream stream, float* into, const float* from, const ParamSpec& param);

/// Writes a sum as it leaves the device to `to`, which lies before `from`: kAlignment bytes or more
/// where it is rounded. The ranges may overlap.
void pack_sum(kernels::Stream stream, std::byte* to, const std::byte* from, const ParamSpec& param);

/// The same of packed sums of the type and shape of `sum`, in host memory.
void add_packed(std::byte* into, const std::byte* from, const TensorSpec& sum);
double squared_norm_of(const std::byte* data, const TensorSpec& sum);

}  // namespace spillway
