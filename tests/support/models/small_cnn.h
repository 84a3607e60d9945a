#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "spillway/cnn_config.h"
#include "spillway/trial_config.h"

/// A small convolutional network for digits with every type of layer, and the same in plain
/// LibTorch.
namespace spillway::testing {

CnnConfig small_cnn(double drop = 0.1, const CnnPieces& pieces = {});

using ValueOf = std::function<at::Tensor(const std::string&)>;

/// The loss of small_cnn() without dropout, in training, with the parameters `value`: the sum of
/// the cross entropies of `rows`.
at::Tensor plain_small_cnn(const at::Tensor& rows, const ValueOf& value);

/// As resnet_trial().
TrialConfig cnn_trial(const CnnConfig& model = small_cnn(), std::int64_t vn_size = 4);

}  // namespace spillway::testing
