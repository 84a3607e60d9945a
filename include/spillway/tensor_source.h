#pragma once

#include <ATen/core/Tensor.h>

#include "spillway/data_source.h"

namespace spillway {

/// Samples in memory: sample i is inputs[i] followed by targets[i], both flattened. With float32
/// `inputs` [N, ...] the rows are float32, and integer targets must be below 2^24, such as classes;
/// with int64 inputs the targets [N, ...] are int64 too. Copies both tensors. Split by split().
/// Throws ConfigError (`data`) for other tensors, and like split().
std::shared_ptr<const DataSplit> tensor_data(const at::Tensor& inputs, const at::Tensor& targets,
                                             double eval_fraction);

}  // namespace spillway
