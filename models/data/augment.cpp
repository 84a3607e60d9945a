#include "spillway/augment.h"

#include <vector>

#include "spillway/data_source.h"

namespace spillway {
namespace {

/// Keeps these random numbers apart from those of layers, whose streams count from 0.
constexpr std::uint32_t kStream = 0xFFFFFFFDu;

/// -1, 0 or 1.
std::int64_t shift_of(std::uint32_t word) {
  return static_cast<std::int64_t>((std::uint64_t{word} * 3) >> 32) - 1;
}

}  // namespace

PhiloxBlock augment_words(std::uint64_t seed, std::int64_t step, int vn, std::int64_t sample) {
  return philox({static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(vn), kStream,
                 static_cast<std::uint32_t>(step)},
                seed);
}

Augment shift_pictures(std::int64_t height, std::int64_t width) {
  return [=](std::span<std::byte> row, const PhiloxBlock& words) {
    const std::int64_t down = shift_of(words[0]), right = shift_of(words[1]);
    const auto values = values_of<std::int64_t>(row);
    const std::vector<std::int64_t> old(values.begin(), values.begin() + height * width);
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t from_y = y - down, from_x = x - right;
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        values[static_cast<std::size_t>(y * width + x)] =
            inside ? old[static_cast<std::size_t>(from_y * width + from_x)] : 0;
      }
    }
  };
}

}  // namespace spillway
