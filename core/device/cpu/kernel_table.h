#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/kernels.h"

/// The kernels that core/device/cpu/kernels.cpp dispatches to.
namespace spillway::kernels::detail {

/// Dropout with precomputed arithmetic: an element is kept if its word is >= `threshold`.
struct Dropout {
  std::uint32_t threshold = 0;
  float scale = 1;
  RandomKey key;
};

Dropout settled(std::size_t n, float p, const RandomKey& key);

constexpr PhiloxBlock counter_of(const RandomKey& key, std::uint32_t block) {
  return {block, key.vn, key.stream, key.step};
}

// Elements of either type, in kernels that compute with floats.
constexpr float value_of(float x) { return x; }
constexpr float value_of(BFloat16 x) { return to_float(x); }
constexpr void assign(float& out, float x) { out = x; }
constexpr void assign(BFloat16& out, float x) { out = to_bfloat16(x); }
constexpr float rounded(float x) { return to_float(to_bfloat16(x)); }

/// The kernels for one instruction set, all compiled from core/device/cpu/kernel_bodies.inl.
struct KernelTable {
  void (*dropout)(float* out, const float* in, std::size_t n, const Dropout& how);
  void (*dropout_bf16)(BFloat16* out, const BFloat16* in, std::size_t n, const Dropout& how);
  void (*add)(float* sum, const float* term, std::size_t n);
  void (*add_bf16)(float* sum, const BFloat16* term, std::size_t n);
  void (*add_to_bf16)(BFloat16* sum, const BFloat16* term, std::size_t n);
  void (*add_rounded)(float* sum, const float* term, std::size_t n);
  void (*widen)(float* out, const BFloat16* in, std::size_t n);
  void (*narrow)(BFloat16* out, const float* in, std::size_t n);
  double (*squared_norm)(const float* x, std::size_t n);
  double (*squared_norm_bf16)(const BFloat16* x, std::size_t n);
  void (*adamw)(float* p, float* m, float* v, const float* g, std::size_t n, const AdamW& hyper);
  void (*adamw_bf16)(float* p, float* m, float* v, const BFloat16* g, std::size_t n,
                     const AdamW& hyper);
  void (*sgd)(float* p, float* m, const float* g, std::size_t n, const Sgd& hyper);
  void (*sgd_bf16)(float* p, float* m, const BFloat16* g, std::size_t n, const Sgd& hyper);
  void (*fill_normal)(float* x, std::size_t n, double stddev, const RandomKey& key,
                      std::size_t first);
};

extern const KernelTable kBaselineKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels, kAvx512Kernels;
#endif

}  // namespace spillway::kernels::detail
