#pragma once

#include "spillway/model.h"
#include "spillway/resnet_config.h"

namespace spillway {

/// A residual network that classifies pictures, of basic blocks: two 3 x 3 convolutions, each with
/// batch normalization, and a shortcut around them that is added ahead of the last ReLU. The first
/// block of every stage but the first halves the picture; where the shape changes, the shortcut is
/// a 1 x 1 convolution with batch normalization. In front a 3 x 3 convolution, at the end the mean
/// over the picture and a linear layer. Dropout is between the convolutions of a block.
///
/// A graph of layers, each one convolution with what follows it: "conv1", then for each block
/// "layer1.0.downsample" (where it is needed), "layer1.0.conv1", "layer1.0.conv2", then "fc". A
/// sample is a picture of whole numbers and a label in [0, num_labels); batch edge "rows" is
/// [sample, num_channels * image_size^2 + 1] i64.
///
/// Parameters and running statistics are named as in torchvision: "conv1.weight", "bn1.weight",
/// "bn1.running_mean", "layer1.0.conv1.weight", ..., "fc.bias". Convolutions start normal with
/// variance 2 / (outputs * kernel area), the linear layer with 1 / inputs, norms as ones, biases as
/// zeros. Weight decay applies to convolutions and the linear layer's matrix.
///
/// Throws ConfigError as ResnetConfig::validate(), as freeze(), and (`train.batch_size`) where a
/// virtual node has no sample or too many, or so few numbers a channel that they have no variance.
///
/// Source: He et al., "Deep residual learning for image recognition", 2015 (section 4.2);
/// Zagoruyko and Komodakis, "Wide residual networks", 2016 (dropout).
std::unique_ptr<Model> make_resnet(const ResnetConfig& config, std::int64_t vn_size);

}  // namespace spillway
