#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "spillway/philox.h"
#include "spillway/spec.h"

namespace spillway {

/// What a layer may depend on besides its tensors.
struct LayerContext {
  bool training = true;  ///< dropout applies, statistics are observed; no: they are used
  RandomKey random;      ///< seed, step, virtual node; `stream` = layer * 16, add the draw's number
  void* stream = nullptr;  ///< where it computes, for core/device/kernels.h
  int gpu = -1;            ///< the number of the GPU that it computes on; -1: the processor
};

/// Output of a layer; for the loss layer a 0-dim sum over examples, and their total weight.
struct LayerResult {
  at::Tensor output;
  double weight = 0;
  /// In training, this virtual node's observation of each averaged statistic among the parameters,
  /// in their order and shapes (spillway/spec.h).
  std::vector<at::Tensor> observations;
  /// What the graph hangs on in place of the parameters, one for each; empty: on them.
  std::vector<at::Tensor> leaves;
  /// Kept until the graph is gone: whatever it must not share meanwhile. Released by the thread
  /// that called forward().
  std::shared_ptr<void> lease;
};

/// A piece of a model. Any number of device threads may call it at once; a layer that has a state
/// of its own lets one in at a time (LayerResult::lease). A thread takes leases in ascending order
/// of layers, so threads never wait for each other in a circle.
class Layer {
 public:
  virtual ~Layer() = default;
  /// `inputs` and `params` are in the order of the LayerSpec; shapes and types as in its edges and
  /// parameters, and so is the output's. Works with and without grad mode, with the same bits.
  virtual LayerResult forward(std::span<const at::Tensor> inputs,
                              std::span<const at::Tensor> params,
                              const LayerContext& context) const = 0;
};

/// A model as Spillway trains it: its spec and, in the same order, its layers.
struct Model {
  ModelSpec spec;
  std::vector<std::unique_ptr<Layer>> layers;
  /// Writes the initial values of all parameters, in order: a function of `seed` alone. Null: each
  /// parameter starts as its spec says. Any thread.
  std::function<void(std::uint64_t seed, std::span<std::byte* const> params)> initialize;
};

}  // namespace spillway
