#include "trainer/compute/sum_term.h"

#include <algorithm>

namespace spillway {
namespace {

std::size_t elements(const TensorSpec& tensor) {
  return static_cast<std::size_t>(tensor.elements());
}

}  // namespace

void add_term(kernels::Stream stream, float* sum, const std::byte* term, const TensorSpec& tensor,
              bool fresh) {
  const std::size_t n = elements(tensor);
  if (!term) {
    if (fresh) kernels::clear(stream, sum, n * sizeof(float));
  } else if (tensor.dtype == DType::bf16) {
    const auto* narrow = reinterpret_cast<const BFloat16*>(term);
    fresh ? kernels::widen(stream, sum, narrow, n) : kernels::add(stream, sum, narrow, n);
  } else if (fresh) {
    kernels::copy(stream, sum, term, n * sizeof(float));
  } else {
    kernels::add(stream, sum, reinterpret_cast<const float*>(term), n);
  }
}

void merge_sum(kernels::Stream stream, float* into, const float* from, const ParamSpec& param) {
  const std::size_t n = elements(param.tensor);
  if (param.finished_sum().dtype == DType::bf16) {
    kernels::add_rounded(stream, into, from, n);
  } else {
    kernels::add(stream, into, from, n);
  }
}

void pack_sum(kernels::Stream stream, std::byte* to, const std::byte* from,
              const ParamSpec& param) {
  if (to == from) return;
  const DType dtype = param.finished_sum().dtype;
  const std::size_t n = elements(param.tensor), size = size_of(dtype);
  const auto gap = static_cast<std::size_t>(from - to);
  for (std::size_t begin = 0, end; begin < n; begin = end) {
    // Each write ends before the elements that are still to be read.
    end = std::min(n, (gap + begin * sizeof(float)) / size);
    const std::byte* source = from + begin * sizeof(float);
    std::byte* place = to + begin * size;
    if (dtype == DType::bf16) {
      kernels::narrow(stream, reinterpret_cast<BFloat16*>(place),
                      reinterpret_cast<const float*>(source), end - begin);
    } else {
      kernels::copy(stream, place, source, (end - begin) * size);
    }
  }
}

void add_packed(std::byte* into, const std::byte* from, const TensorSpec& sum) {
  if (sum.dtype == DType::bf16) {
    kernels::add(reinterpret_cast<BFloat16*>(into), reinterpret_cast<const BFloat16*>(from),
                 elements(sum));
  } else {
    kernels::add(reinterpret_cast<float*>(into), reinterpret_cast<const float*>(from),
                 elements(sum));
  }
}

double squared_norm_of(const std::byte* data, const TensorSpec& sum) {
  return sum.dtype == DType::bf16
             ? kernels::squared_norm(reinterpret_cast<const BFloat16*>(data), elements(sum))
             : kernels::squared_norm(reinterpret_cast<const float*>(data), elements(sum));
}

}  // namespace spillway
