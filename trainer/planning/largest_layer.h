#pragma once

#include <string>

#include "scheduler/plan/need.h"

namespace spillway {

/// The layer's largest parameter: "head.weight, 50257 x 1024". Empty if it has none.
std::string largest_weight(const ModelSpec& model, const LayerSpec& layer);

/// Which layer alone needs most of a device, and for what.
std::string describe_largest_layer(const NeedTable& needs);

}  // namespace spillway
