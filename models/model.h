#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "core/philox.h"
#include "core/spec.h"

namespace spillway {

/// What a layer may depend on besides its tensors.
struct LayerContext {
  bool training = true;  ///< dropout applies
  RandomKey random;      ///< seed, step, virtual node; `stream` = layer * 16, add the draw's number
};

/// Output of a layer; for the loss layer a 0-dim sum over examples, and their total weight.
struct LayerResult {
  at::Tensor output;
  double weight = 0;
};

/// A piece of a model: stateless, so any number of device threads may call it at once.
class Layer {
 public:
  virtual ~Layer() = default;
  /// `inputs` and `params` are in the order of the LayerSpec; shapes as in its edges and
  /// parameters. Works with and without grad mode, with the same bits.
  virtual LayerResult forward(std::span<const at::Tensor> inputs,
                              std::span<const at::Tensor> params,
                              const LayerContext& context) const = 0;
};

/// A model as Spillway trains it: its spec and, in the same order, its layers.
struct Model {
  ModelSpec spec;
  std::vector<std::unique_ptr<Layer>> layers;
};

}  // namespace spillway
