#pragma once

#include <array>
#include <cstdint>

namespace spillway {

/// A counter of Philox, or the four random words that it becomes.
using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Philox4x32 with ten rounds: four random words from a counter and a key, without state.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
constexpr PhiloxBlock philox(PhiloxBlock counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ k1,
               static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// Key of random numbers: it identifies the use of the numbers, not the device or time of the draw.
/// Element e of a draw uses word e % 4 of counter {e / 4, vn, stream, step}.
struct RandomKey {
  std::uint64_t seed = 0;    ///< of the job
  std::uint32_t step = 0;    ///< number of the step
  std::uint32_t vn = 0;      ///< virtual node
  std::uint32_t stream = 0;  ///< layer * 16 + number of the draw within the layer
};

}  // namespace spillway
