#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "spillway/data_source.h"

namespace spillway {

/// Samples in tensors [N, ...]: sample i is parts[0][i], parts[1][i] and so on, each flattened.
/// They may lie in mapped files. Contiguous tensors on the CPU are read in place, so they must not
/// change. The rows are float32 if a part has floating-point numbers, and integers must then lie
/// between -2^24 and 2^24, which is checked when a sample is read; else the rows are int64. Throws
/// ConfigError (`data`) for other tensors.
std::shared_ptr<const DataSource> tensor_rows(std::vector<at::Tensor> parts);

/// Samples in memory: sample i is inputs[i] followed by targets[i], both flattened. With float32
/// `inputs` [N, ...] the rows are float32, and integer targets must be below 2^24, such as classes;
/// with int64 inputs the targets [N, ...] are int64 too. Copies both tensors. Split by split().
/// Throws ConfigError (`data`) for other tensors, and like split().
std::shared_ptr<const DataSplit> tensor_data(const at::Tensor& inputs, const at::Tensor& targets,
                                             double eval_fraction);

}  // namespace spillway
