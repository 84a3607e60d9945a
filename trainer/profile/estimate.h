#pragma once

#include <vector>

#include "core/spec/profile.h"
#include "spillway/spec.h"

namespace spillway {

/// Estimates the costs of a model's layers from their shapes and the rate of matrix products,
/// without running them. Times and peaks are right within about a factor of two; a pilot is exact.
std::vector<LayerProfile> estimate_layers(const ModelSpec& model, double matmul_flops_per_s,
                                          double memory_bytes_per_s);

}  // namespace spillway
