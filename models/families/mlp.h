#pragma once

#include "spillway/mlp_config.h"
#include "spillway/model.h"

namespace spillway {

/// A multilayer perceptron for classification. Layers: "h.0", "h.1", ..., each linear, activation
/// and dropout, then head (linear, cross-entropy summed over samples). A sample is input_size
/// integers and a label in [0, num_labels); batch edge "rows" is [sample, input_size + 1] i64.
/// Parameters are "h.0.weight", "h.0.bias", ..., "head.bias"; weights start normal with variance 2
/// / inputs, biases as zeros. Weight decay applies to weights only.
/// Throws ConfigError like MlpConfig::validate() and freeze(), and (`train.batch_size`) if a
/// virtual node has no sample or too many.
/// Source: He et al., "Delving deep into rectifiers", 2015 (initial weights).
std::unique_ptr<Model> make_mlp(const MlpConfig& config, std::int64_t vn_size);

}  // namespace spillway
