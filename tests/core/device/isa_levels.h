#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/device/kernels.h"

namespace spillway::kernels {

/// Dispatches to `isa` until destroyed; `isa` must be one of isa_levels().
class IsaLimit {
 public:
  explicit IsaLimit(Isa isa) { limit_isa(isa); }
  ~IsaLimit() { limit_isa(Isa::avx512); }
  IsaLimit(const IsaLimit&) = delete;
  IsaLimit& operator=(const IsaLimit&) = delete;
};

/// The levels of this CPU, lowest first.
inline std::vector<Isa> isa_levels() {
  std::vector<Isa> levels;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (limit_isa(isa) == isa) levels.push_back(isa);
  }
  limit_isa(Isa::avx512);
  return levels;
}

/// Sizes around every vector and chunk boundary.
inline std::vector<std::size_t> awkward_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t n = 0; n <= 130; ++n) sizes.push_back(n);
  for (const std::size_t n : {4095u, 4096u, 4097u, 8191u, 8200u, 12345u}) sizes.push_back(n);
  return sizes;
}

inline std::vector<float> random_values(std::size_t n, std::uint32_t stream, double stddev = 1) {
  std::vector<float> x(n);
  fill_normal(x.data(), n, stddev, RandomKey{.seed = 99, .stream = stream});
  return x;
}

inline std::vector<std::uint32_t> bits(const std::vector<float>& x) {
  std::vector<std::uint32_t> all;
  for (const float value : x) all.push_back(std::bit_cast<std::uint32_t>(value));
  return all;
}

}  // namespace spillway::kernels
