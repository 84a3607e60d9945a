#include "core/kernels.h"

namespace spillway::kernels {

void dropout(Queue&, float* out, const float* in, std::size_t n, float p, const RandomKey& key) {
  dropout(out, in, n, p, key);
}

void add(Queue&, float* sum, const float* term, std::size_t n) { add(sum, term, n); }

void squared_norm(Queue&, double* sum, double*, const float* x, std::size_t n) {
  *sum = squared_norm(x, n);
}

}  // namespace spillway::kernels
