#pragma once

#include "spillway/model.h"
#include "spillway/resnet_config.h"

namespace spillway {

/// A residual network of basic blocks for the classification of pictures: two 3 x 3 convolutions,
/// each with batch normalization, and a shortcut around them that is added before the last ReLU.
/// The first block of every stage but the first halves the picture; if the shape changes, the
/// shortcut is a 1 x 1 convolution with batch normalization. The network starts with a 3 x 3
/// convolution and ends with average pooling and a linear layer. Dropout is between the
/// convolutions of a block.
/// A graph of layers, each one convolution and the operations after it: "conv1", then for each
/// block "layer1.0.downsample.0" (if needed), "layer1.0.conv1", "layer1.0.conv2", then "fc". A
/// sample is a picture of integers and a label in [0, num_labels); batch edge "rows" is [sample,
/// num_channels * image_size^2 + 1] i64.
/// Parameters and running statistics are named as in torchvision: "conv1.weight", "bn1.weight",
/// "bn1.running_mean", "layer1.0.conv1.weight", ..., "fc.bias". Convolutions start normal with
/// variance 2 / (outputs * kernel area), the linear layer with 1 / inputs, norms as ones, biases as
/// zeros. Weight decay applies to convolutions and the linear layer's matrix.
/// Throws ConfigError like ResnetConfig::validate() and freeze(), and (`train.batch_size`) if a
/// virtual node has no sample, too many samples, or too few numbers per channel for a variance.
/// Source: He et al., "Deep residual learning for image recognition", 2015 (section 4.2); Zagoruyko
/// and Komodakis, "Wide residual networks", 2016 (dropout).
std::unique_ptr<Model> make_resnet(const ResnetConfig& config, std::int64_t vn_size);

}  // namespace spillway
