#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace spillway {

/// The largest divisor of `number` up to `most`; 1 if one of them is not positive.
inline std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  auto divisor = std::max<std::int64_t>(1, std::min(most, number));
  while (number % divisor != 0) --divisor;
  return divisor;
}

/// Divides `whole` into parts as even as possible: they differ by at most one, larger ones first.
inline std::vector<int> split_evenly(int whole, int parts) {
  std::vector<int> sizes;
  for (int part = 0; part < parts; ++part) {
    sizes.push_back(whole / parts + (part < whole % parts ? 1 : 0));
  }
  return sizes;
}

}  // namespace spillway
