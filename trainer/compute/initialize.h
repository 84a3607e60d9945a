#pragma once

#include <cstdint>

#include "spillway/spec.h"

namespace spillway {

/// Writes the initial values of a parameter, which holds stored tensor number `tensor` of a model
/// or a part of it: a function of `seed`, the number and the spec alone. A part has the values that
/// the whole tensor has there. `values` holds all elements of the parameter.
void initialize(float* values, const ParamSpec& spec, std::uint64_t seed, std::size_t tensor);

}  // namespace spillway
