#include "trainer/sum_term.h"

namespace spillway {

void add_term(kernels::Stream stream, float* sum, const std::byte* term, const TensorSpec& tensor,
              bool fresh) {
  const auto n = static_cast<std::size_t>(tensor.elements());
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

}  // namespace spillway
