#pragma once

#include <bit>
#include <cstdint>

namespace spillway {

/// The upper half of a float: its 8 bits of exponent, 7 of its 23 of fraction.
struct BFloat16 {
  std::uint16_t bits;
  bool operator==(const BFloat16&) const = default;
};

constexpr float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

/// The nearest; of two as near the one whose last bit is 0. A NaN becomes 0x7FC0, as in LibTorch.
constexpr BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {0x7FC0};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace spillway
