#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "spillway/philox.h"

namespace spillway {

/// Changes a sample in place before training: a function of the sample and of random words that
/// belong to it alone. Any thread may call it.
using Augment = std::function<void(std::span<std::byte> row, const PhiloxBlock& words)>;

/// The random words of sample number `sample` of virtual node `vn` in step `step`.
PhiloxBlock augment_words(std::uint64_t seed, std::int64_t step, int vn, std::int64_t sample);

/// Shifts a picture of `height` x `width` i64 values at the start of a row by -1, 0 or 1 pixels
/// vertically and horizontally, each with equal probability. Zeros fill the gap.
Augment shift_pictures(std::int64_t height, std::int64_t width);

}  // namespace spillway
