#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/model.h"

namespace spillway {

/// Writes the initial values of a parameter, which holds stored tensor number `tensor` of a model
/// or a part of it: a function of `seed`, the number and the spec alone. A part has the values that
/// the whole tensor has there. `values` holds all elements of the parameter.
void initialize(float* values, const ParamSpec& spec, std::uint64_t seed, std::size_t tensor);

/// Writes the initial values of a model's parameters, given by number, where the address is not
/// null. Without a function of the model's own it leaves out counts, which are zero in new memory.
void initialize(const Model& model, std::uint64_t seed, std::span<std::byte* const> params);

}  // namespace spillway
