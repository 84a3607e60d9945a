#include "core/device/kernels.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>

#include "core/device/cpu/kernel_table.h"

namespace spillway::kernels {
namespace {

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return Isa::avx512;
  }
  if (__builtin_cpu_supports("avx2")) return Isa::avx2;
#endif
  return Isa::baseline;
}

std::atomic<Isa>& isa_in_use() {
  static std::atomic<Isa> isa{best_isa()};
  return isa;
}

const detail::KernelTable& table() {
#if defined(__x86_64__)
  switch (active_isa()) {
    case Isa::avx512:
      return detail::kAvx512Kernels;
    case Isa::avx2:
      return detail::kAvx2Kernels;
    case Isa::baseline:
      break;
  }
#endif
  return detail::kBaselineKernels;
}

}  // namespace

Isa active_isa() { return isa_in_use().load(std::memory_order_relaxed); }

Isa limit_isa(Isa highest) {
  isa_in_use() = std::min(highest, best_isa());
  return active_isa();
}

detail::Dropout detail::settled([[maybe_unused]] std::size_t n, float p, const RandomKey& key) {
  assert(p >= 0 && p < 1 && n / 4 <= 0xFFFFFFFFu);
  return {.threshold = static_cast<std::uint32_t>(std::llround(static_cast<double>(p) * 0x1p32)),
          .scale = static_cast<float>(1 / (1 - static_cast<double>(p))),
          .key = key};
}

void dropout(float* out, const float* in, std::size_t n, float p, const RandomKey& key) {
  table().dropout(out, in, n, detail::settled(n, p, key));
}

void dropout(BFloat16* out, const BFloat16* in, std::size_t n, float p, const RandomKey& key) {
  table().dropout_bf16(out, in, n, detail::settled(n, p, key));
}

void add(float* sum, const float* term, std::size_t n) { table().add(sum, term, n); }

void add(float* sum, const BFloat16* term, std::size_t n) { table().add_bf16(sum, term, n); }

void add(BFloat16* sum, const BFloat16* term, std::size_t n) { table().add_to_bf16(sum, term, n); }

void add_rounded(float* sum, const float* term, std::size_t n) {
  table().add_rounded(sum, term, n);
}

void widen(float* out, const BFloat16* in, std::size_t n) { table().widen(out, in, n); }

void narrow(BFloat16* out, const float* in, std::size_t n) { table().narrow(out, in, n); }

double squared_norm(const float* x, std::size_t n) { return table().squared_norm(x, n); }

double squared_norm(const BFloat16* x, std::size_t n) { return table().squared_norm_bf16(x, n); }

void adamw(float* p, float* m, float* v, const float* g, std::size_t n, const AdamW& hyper) {
  table().adamw(p, m, v, g, n, hyper);
}

void adamw(float* p, float* m, float* v, const BFloat16* g, std::size_t n, const AdamW& hyper) {
  table().adamw_bf16(p, m, v, g, n, hyper);
}

void sgd(float* p, float* m, const float* g, std::size_t n, const Sgd& hyper) {
  table().sgd(p, m, g, n, hyper);
}

void sgd(float* p, float* m, const BFloat16* g, std::size_t n, const Sgd& hyper) {
  table().sgd_bf16(p, m, g, n, hyper);
}

void fill_normal(float* x, std::size_t n, double stddev, const RandomKey& key, std::size_t first) {
  assert((first + n) / 4 <= 0xFFFFFFFFu);
  table().fill_normal(x, n, stddev, key, first);
}

}  // namespace spillway::kernels
