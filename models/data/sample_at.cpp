#include <cassert>

#include "spillway/data_source.h"
#include "spillway/philox.h"

namespace spillway {
namespace {

constexpr std::uint32_t kRounds = 8;
/// Keeps these random numbers apart from a job's others, whose counters end in stream and step.
constexpr std::uint32_t kTag = 0xFFFFFFFEu;

std::uint64_t epoch_key(std::uint64_t epoch, std::uint64_t seed) {
  const auto words = philox(
      {static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32), kTag, kTag},
      seed);
  return std::uint64_t{words[1]} << 32 | words[0];
}

/// A bijection of [0, 4^half_bits), half_bits <= 32.
/// Source: Luby and Rackoff, "How to construct pseudorandom permutations", 1988.
std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits, right = value & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const auto words = philox({static_cast<std::uint32_t>(right), round, kTag, 0}, key);
    const std::uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

/// Bits of one half: 4^half_bits is the least power of 4 that is at least n.
int half_bits_of(std::uint64_t n) {
  int bits = 1;
  while (bits < 32 && (n - 1) >> (2 * bits) != 0) ++bits;
  return bits;
}

}  // namespace

std::uint64_t sample_at(std::uint64_t position, std::uint64_t num_samples, std::uint64_t seed) {
  assert(num_samples > 0);
  const std::uint64_t key = epoch_key(position / num_samples, seed);
  const int half_bits = half_bits_of(num_samples);
  std::uint64_t value = position % num_samples;
  do {  // walks the cycle of the larger set until it is back inside
    value = feistel(value, half_bits, key);
  } while (value >= num_samples);
  return value;
}

}  // namespace spillway
