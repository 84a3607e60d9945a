#pragma once

#include "core/base/field.h"

/// Ranges and sentences of fields that several model families have.
namespace spillway {

// Larger than any real model; products of two such sizes do not overflow.
inline constexpr IntRange kSize{1, 1 << 24};
inline constexpr IntRange kNumLayers{1, 1024};
inline constexpr IntRange kPieces{.min = 1, .max = 64, .word = "auto", .meaning = 0};
inline constexpr NumberRange kBelowOne{.min = 0, .max = 1, .below_max = true};
inline constexpr NumberRange kAboveZero{.min = 0, .above_min = true};
inline constexpr const char* kDropoutText =
    "Probability that an element is dropped; it does not depend on where a sample is computed.";
inline constexpr const char* kFreezeText =
    "Patterns of parameter names, such as `[wte.*, h.0.*]`. Frozen parameters keep their initial "
    "weights and have no gradients and no optimizer state.";

}  // namespace spillway
