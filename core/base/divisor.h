#pragma once

#include <algorithm>
#include <cstdint>

namespace spillway {

/// The largest divisor of `number` up to `most`; 1 if one of them is not positive.
inline std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  auto divisor = std::max<std::int64_t>(1, std::min(most, number));
  while (number % divisor != 0) --divisor;
  return divisor;
}

}  // namespace spillway
