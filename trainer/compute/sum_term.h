#pragma once

#include <cstddef>

#include "core/device/kernels.h"
#include "spillway/spec.h"

namespace spillway {

/// Adds the term of one virtual node to a sum in f32: a gradient or an observation of the type and
/// shape of `tensor` (f32 or bf16); null: zero. `fresh`: it is the first term. Both lie in memory
/// of the stream's device.
void add_term(kernels::Stream stream, float* sum, const std::byte* term, const TensorSpec& tensor,
              bool fresh);

/// Adds a finished sum of the parameter to another, both in memory of the stream's device. Both are
/// rounded first if the parameter's finished sums are bf16.
void merge_sum(kernels::Stream stream, float* into, const float* from, const ParamSpec& param);

/// Writes a sum as it leaves the device to `to`, which lies before `from`, by at least kAlignment
/// bytes if the sum is rounded. The ranges may overlap.
void pack_sum(kernels::Stream stream, std::byte* to, const std::byte* from, const ParamSpec& param);

/// Like merge_sum(), for packed sums in host memory. These share large sums among TBB's threads.
void add_packed(std::byte* into, const std::byte* from, DType dtype, Bytes bytes);
/// Of `n` elements of a sum: writes the squared norm of each chunk (kernels::kNormChunk).
void norms_of_chunks(double* norms, const std::byte* data, DType dtype, std::size_t n);
double squared_norm_of(const std::byte* data, const TensorSpec& sum);

}  // namespace spillway
