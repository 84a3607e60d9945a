#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cmath>
#include <cstring>
#include <numbers>

#include "core/device/cpu/kernel_table.h"

#define SPILLWAY_TARGET

namespace spillway::kernels::detail {
namespace {

constexpr std::size_t kLanes = 2;
typedef std::uint64_t Counters __attribute__((vector_size(8 * kLanes)));

inline Counters multiply_low(Counters a, std::uint32_t b) {
#if defined(__SSE2__)
  return (Counters)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
  return Counters{(a[0] & 0xFFFFFFFFu) * b, (a[1] & 0xFFFFFFFFu) * b};
#endif
}
inline Counters unpack_low(Counters a, Counters b) { return Counters{a[0], b[0]}; }
inline Counters unpack_high(Counters a, Counters b) { return Counters{a[1], b[1]}; }

#include "core/device/cpu/kernel_bodies.inl"

}  // namespace

const KernelTable kBaselineKernels = kTable;

}  // namespace spillway::kernels::detail
