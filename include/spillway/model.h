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
  bool training = true;    ///< true: dropout applies, statistics are observed; false: evaluation
  RandomKey random;        ///< seed, step, virtual node; `stream` is layer * 16, add the draw
  void* stream = nullptr;  ///< where the layer computes, for core/device/kernels.h
  int gpu = -1;            ///< number of the GPU; -1: CPU
  /// Of the layer's output: bf16 or f32, as TrainConfig::dtype says; f32 for the loss.
  DType dtype = DType::f32;
};

/// Output of a layer.
struct LayerResult {
  at::Tensor output;  ///< for the loss layer: the sum over examples, without dimensions
  double weight = 0;  ///< for the loss layer: total weight of the examples
  /// For the loss layer outside of training: the sums of the model's metrics, in their order, f64
  /// [ModelSpec::num_metric_sums()]. May be undefined without sums.
  at::Tensor metrics;
  /// For the loss layer outside of training: what Session::predict() gives, [B, ...]. Undefined:
  /// its first input.
  at::Tensor prediction;
  /// In training: the observation by this virtual node of each averaged statistic among the
  /// parameters, in their order and shapes (spillway/spec.h).
  std::vector<at::Tensor> observations;
  /// Leaves of the graph that stand for the parameters, one each; empty: the parameters themselves.
  std::vector<at::Tensor> leaves;
  /// Released when the graph is gone, by the thread that called forward(). Protects what the graph
  /// must not share. Only if LayerSpec::keeps_graph is false.
  std::shared_ptr<void> lease;
};

/// A piece of a model. Any number of device threads may call it at once; a layer with a state of
/// its own admits one at a time (LayerResult::lease). A thread takes leases in ascending order of
/// layers, so there is no deadlock.
class Layer {
 public:
  virtual ~Layer() = default;
  /// `inputs` and `params` come in the order of the LayerSpec, with the shapes and types of its
  /// edges and parameters; the output has those of its edge. The bits are the same with and without
  /// grad mode.
  virtual LayerResult forward(std::span<const at::Tensor> inputs,
                              std::span<const at::Tensor> params,
                              const LayerContext& context) const = 0;
};

/// A model as Spillway trains it.
struct Model {
  ModelSpec spec;                              ///< parameters, edges, layers
  std::vector<std::unique_ptr<Layer>> layers;  ///< in the order of `spec.layers`
  /// Writes the initial values of all parameters, in order: a function of `seed` alone. Any thread
  /// may call it. An address is null where no value is wanted, because another trial that shares
  /// the parameter has written it, or a checkpoint has it. Of parameters that no trial can share
  /// (see ParamSpec::content), none or all are wanted; but a model with a file (`map`) may be asked
  /// for some at a time. Null: each parameter starts as its spec says.
  std::function<void(std::uint64_t seed, std::span<std::byte* const> params)> initialize;
  /// A parameter among others in one piece of memory.
  struct Place {
    int param = 0;     ///< its position in the model
    Bytes offset = 0;  ///< behind the first of them
  };
  /// Maps the initial values of parameters, as ParamSpec::master(), from the model's file. Returns
  /// null if the file does not have them in these places. Nobody may write to the result. Null: the
  /// model has no file.
  std::function<std::shared_ptr<std::byte>(std::span<const Place> places)> map;
};

}  // namespace spillway
