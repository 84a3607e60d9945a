#pragma once

#include <ATen/core/Tensor.h>

#include "spillway/data_source.h"

namespace spillway {

/// Samples in memory, for models that are made in C++: sample i is inputs[i] and behind it
/// targets[i], both flat. The rows are float32 where `inputs` [N, ...] is, and then integer targets
/// are numbers below 2^24 such as classes; with int64 inputs the targets [N, ...] are int64 too.
/// Takes copies. Split as by split().
/// Throws ConfigError (`data`) for other tensors, and as split().
std::shared_ptr<const DataSplit> tensor_data(const at::Tensor& inputs, const at::Tensor& targets,
                                             double eval_fraction);

}  // namespace spillway
