#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "spillway/philox.h"

namespace spillway {

/// Changes a sample in place before it is trained on: a function of the sample and of random words
/// of its own. Any thread.
using Augment = std::function<void(std::span<std::byte> row, const PhiloxBlock& words)>;

/// The random words of sample number `sample` of virtual node `vn` in step `step`.
PhiloxBlock augment_words(std::uint64_t seed, std::int64_t step, int vn, std::int64_t sample);

/// Moves a picture of `height` x `width` i64, which a row begins with, by -1, 0 or 1 down and to
/// the right, each with equal chances; zeros come in.
Augment shift_pictures(std::int64_t height, std::int64_t width);

}  // namespace spillway
