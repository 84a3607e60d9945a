#pragma once

#include <cstdint>

#include "spillway/spec.h"

namespace spillway {

/// Writes the initial values of parameter number `param` of a model: a function of `seed`, the
/// number and the spec alone. `values` holds all its elements.
void initialize(float* values, const ParamSpec& spec, std::uint64_t seed, std::size_t param);

}  // namespace spillway
