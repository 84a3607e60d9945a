#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "core/device/cpu/kernel_table.h"

#define SPILLWAY_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))

namespace spillway::kernels::detail {
namespace {

constexpr std::size_t kLanes = 8;
typedef std::uint64_t Counters __attribute__((vector_size(8 * kLanes)));

SPILLWAY_TARGET inline Counters multiply_low(Counters a, std::uint32_t b) {
  return (Counters)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
}
SPILLWAY_TARGET inline Counters unpack_low(Counters a, Counters b) {
  return (Counters)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
}
SPILLWAY_TARGET inline Counters unpack_high(Counters a, Counters b) {
  return (Counters)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
}

#include "core/device/cpu/kernel_bodies.inl"

}  // namespace

const KernelTable kAvx512Kernels = kTable;

}  // namespace spillway::kernels::detail

#endif
