#pragma once

#include <vector>

#include "core/spec/profile.h"
#include "spillway/spec.h"

namespace spillway {

/// What the layers of a model would cost, from their shapes and from the rate of matrix products:
/// nothing of the model runs or is allocated. Times and peaks are right within about a factor of
/// two; a pilot is exact.
std::vector<LayerProfile> estimate_layers(const ModelSpec& model, double matmul_flops_per_s,
                                          double memory_bytes_per_s);

}  // namespace spillway
