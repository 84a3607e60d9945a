#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "core/device/cpu/kernel_table.h"

#define SPILLWAY_TARGET __attribute__((target("avx2")))

namespace spillway::kernels::detail {
namespace {

constexpr std::size_t kLanes = 4;
typedef std::uint64_t Counters __attribute__((vector_size(8 * kLanes)));

SPILLWAY_TARGET inline Counters multiply_low(Counters a, std::uint32_t b) {
  return (Counters)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
}
SPILLWAY_TARGET inline Counters unpack_low(Counters a, Counters b) {
  return (Counters)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}
SPILLWAY_TARGET inline Counters unpack_high(Counters a, Counters b) {
  return (Counters)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}

#include "core/device/cpu/kernel_bodies.inl"

}  // namespace

const KernelTable kAvx2Kernels = kTable;

}  // namespace spillway::kernels::detail

#endif
