#pragma once

#include <algorithm>
#include <cstdint>

namespace spillway {

/// The largest divisor of `number` up to `most`; both are at least 1.
inline std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  auto divisor = std::clamp<std::int64_t>(most, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

}  // namespace spillway
