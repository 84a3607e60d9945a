#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace spillway {

/// A parameter or buffer of a model.
struct NamedTensor {
  std::string
      name;  ///< ParamSpec::name; of a Graph: the layer's name, a dot, the module's own name
  at::Tensor value;  ///< f32 or i64, on the CPU, with its own memory
};

/// Copies weights, by the module's own names of its parameters and buffers, each after `prefix`:
/// of a module that is the layer "encoder" of a Graph, "encoder.". Weights that the module does not
/// have are ignored; of tied parameters any name will do. Throws Error, before anything is changed,
/// with the name of a tensor of the module that is missing among the weights or has another type or
/// shape there.
void load_weights(std::span<const NamedTensor> weights, torch::nn::Module& module,
                  const std::string& prefix = "");

}  // namespace spillway
