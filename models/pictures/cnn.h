#pragma once

#include <memory>
#include <string>

#include "spillway/cnn_config.h"
#include "spillway/model.h"

namespace spillway {

/// A convolutional network for the classification of pictures, as its configuration describes it.
/// A layer of the model is a convolution, a linear layer or a pooling, with the operations after
/// it: batch normalization, a sum, the activation, dropout (models/pictures/cnn_graph.h). The last
/// one computes the cross entropy, summed over samples. A sample is a picture of integers and a
/// label in [0, num_classes); batch edge "rows" is [sample, num_channels * image_size^2 + 1] i64.
/// Layer "conv1" has the parameters "conv1.weight" and "conv1.bias"; with batch normalization "bn1"
/// it has "conv1.weight" and those of add_batch_norm(). Presets have torchvision's names.
/// Convolutions with batch normalization start normal with variance 2 / (outputs * kernel area);
/// other convolutions and linear layers with 2 / inputs before a ReLU or GELU, else 1 / inputs.
/// Norms start as ones, biases as zeros. Weight decay applies to weights of convolutions and linear
/// layers.
///
/// With `pieces`, a convolution and its normalization are divided by output channels and a linear
/// layer by its outputs: "conv1/0", "conv1/1", ..., each with an edge of its own. A layer that
/// reads them concatenates them. The sum, the dropout and the loss of a divided layer are a layer
/// behind it, "conv1". If other layers read what it reads, a layer before it, "conv1/in", copies
/// that.
///
/// `family` becomes ModelSpec::family. Throws ConfigError like CnnConfig::validate() and freeze(),
/// and (`train.batch_size`) if a virtual node has no sample, too many samples, or too few numbers
/// per channel for a variance.
std::unique_ptr<Model> make_cnn(const CnnConfig& config, std::int64_t vn_size,
                                const std::string& family = "cnn");

}  // namespace spillway
