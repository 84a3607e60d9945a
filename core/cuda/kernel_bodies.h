#pragma once

#include <cstddef>

#include "core/cpu/kernel_table.h"
#include "core/kernels.h"

/// What one thread of a GPU kernel computes. Plain functions, so that the tests of a machine
/// without a GPU compare their bits with the CPU's too.
namespace spillway::kernels::detail {

inline constexpr std::size_t kNormLanes = 8;

/// Dropout of the four elements that one counter has words for.
template <typename T>
constexpr void drop_block(T* out, const T* in, std::size_t n, std::size_t block,
                          const Dropout& how) {
  const PhiloxBlock words =
      philox(counter_of(how.key, static_cast<std::uint32_t>(block)), how.key.seed);
  for (std::size_t j = 0; j < 4 && 4 * block + j < n; ++j) {
    const std::size_t i = 4 * block + j;
    assign(out[i], words[j] >= how.threshold ? value_of(in[i]) * how.scale : 0.0f);
  }
}

// What becomes of one element of a range, by that of another.
struct Convert {
  template <typename Out, typename In>
  constexpr void operator()(Out& out, In in) const {
    assign(out, value_of(in));
  }
};
struct Add {
  template <typename In>
  constexpr void operator()(float& sum, In term) const {
    sum = sum + value_of(term);
  }
};
struct AddRounded {
  constexpr void operator()(float& sum, float term) const { sum = rounded(sum) + rounded(term); }
};

/// The sum of one lane of a chunk of n elements.
template <typename T>
constexpr double norm_lane(const T* chunk, std::size_t n, std::size_t lane) {
  double sum = 0;
  for (std::size_t i = lane; i < n; i += kNormLanes) {
    const auto wide = static_cast<double>(value_of(chunk[i]));
    sum += wide * wide;
  }
  return sum;
}

/// Elements of chunk number `chunk` of x[0, n); none behind the last.
constexpr std::size_t elements_of_chunk(std::size_t n, std::size_t chunk) {
  const std::size_t begin = chunk * kNormChunk;
  if (begin >= n) return 0;
  return n - begin < kNormChunk ? n - begin : kNormChunk;
}

}  // namespace spillway::kernels::detail
