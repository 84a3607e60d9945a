#include "core/device/kernels.h"

#include <cstring>

namespace spillway::kernels {

void copy(Stream, void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void clear(Stream, void* to, std::size_t bytes) { std::memset(to, 0, bytes); }

void dropout(Stream, float* out, const float* in, std::size_t n, float p, const RandomKey& key) {
  dropout(out, in, n, p, key);
}

void dropout(Stream, BFloat16* out, const BFloat16* in, std::size_t n, float p,
             const RandomKey& key) {
  dropout(out, in, n, p, key);
}

void add(Stream, float* sum, const float* term, std::size_t n) { add(sum, term, n); }

void add(Stream, float* sum, const BFloat16* term, std::size_t n) { add(sum, term, n); }

void add_rounded(Stream, float* sum, const float* term, std::size_t n) {
  add_rounded(sum, term, n);
}

void widen(Stream, float* out, const BFloat16* in, std::size_t n) { widen(out, in, n); }

void narrow(Stream, BFloat16* out, const float* in, std::size_t n) { narrow(out, in, n); }

void squared_norm(Stream, double* sum, double*, const float* x, std::size_t n) {
  *sum = squared_norm(x, n);
}

void squared_norm(Stream, double* sum, double*, const BFloat16* x, std::size_t n) {
  *sum = squared_norm(x, n);
}

}  // namespace spillway::kernels
