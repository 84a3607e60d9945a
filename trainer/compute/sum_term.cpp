#include "trainer/compute/sum_term.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/compute/grains.h"

namespace spillway {
namespace {

std::size_t elements(const TensorSpec& tensor) {
  return static_cast<std::size_t>(tensor.elements());
}

template <typename T>
void add_in_grains(std::byte* into, const std::byte* from, std::size_t n) {
  in_grains(n, [&](std::size_t begin, std::size_t size) {
    kernels::add(reinterpret_cast<T*>(into) + begin, reinterpret_cast<const T*>(from) + begin,
                 size);
  });
}

template <typename T>
void norms_in_grains(double* norms, const T* x, std::size_t n) {
  static_assert(kHostGrain / sizeof(float) % kernels::kNormChunk == 0);
  in_grains(n, [&](std::size_t begin, std::size_t size) {
    for (std::size_t i = begin; i < begin + size; i += kernels::kNormChunk) {
      norms[i / kernels::kNormChunk] =
          kernels::squared_norm(x + i, std::min(kernels::kNormChunk, begin + size - i));
    }
  });
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

void add_packed(std::byte* into, const std::byte* from, DType dtype, Bytes bytes) {
  const auto add = dtype == DType::bf16 ? add_in_grains<BFloat16> : add_in_grains<float>;
  add(into, from, bytes / size_of(dtype));
}

void norms_of_chunks(double* norms, const std::byte* data, DType dtype, std::size_t n) {
  if (dtype == DType::bf16) {
    norms_in_grains(norms, reinterpret_cast<const BFloat16*>(data), n);
  } else {
    norms_in_grains(norms, reinterpret_cast<const float*>(data), n);
  }
}

/// The bits of kernels::squared_norm() over all: its chunks are added in their order.
double squared_norm_of(const std::byte* data, const TensorSpec& sum) {
  const std::size_t n = elements(sum);
  std::vector<double> norms(kernels::num_norm_chunks(n));
  norms_of_chunks(norms.data(), data, sum.dtype, n);
  return std::accumulate(norms.begin(), norms.end(), 0.0);
}

}  // namespace spillway
