#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace spillway::testing {

/// The tensors of a safetensors file by name.
std::map<std::string, at::Tensor> read_safetensors(const std::string& file);

}  // namespace spillway::testing
