#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "models/model.h"
#include "scheduler/program.h"

namespace spillway {

/// A (sum, weight) pair: how losses are added up over virtual nodes.
struct WeightedSum {
  double sum = 0, weight = 0;
  WeightedSum operator+(const WeightedSum& other) const {
    return {sum + other.sum, weight + other.weight};
  }
  double mean() const { return sum / weight; }
};

/// Takes one virtual node through consecutive layers of a model. The same arithmetic in every
/// order and for every cut: graphs are local to one layer, and a layer's backward starts from its
/// recomputed forward. LibTorch allocates activations only; nothing outlives a call.
class RangeRunner {
 public:
  /// Parameters of layer `layer`, in spec order, as raw memory.
  using Parameters = std::function<std::vector<std::byte*>(int layer)>;
  /// Takes the gradient of one trainable parameter (null: zero) while it is alive. Layers come in
  /// reverse.
  using TakeGradient = std::function<void(int layer, int param, const float* gradient)>;

  RangeRunner(const Model& model, LayerRange layers, LayerContext context, Parameters parameters)
      : model_(model), layers_(layers), context_(context), parameters_(std::move(parameters)) {}

  /// Called in backward() after each layer's forward: where a pilot reads the memory in use.
  std::function<void(int layer)> after_forward;

  /// Forward without a graph; returns the loss of a range that ends with the loss layer. `input`:
  /// the boundary before the range (null for the first layer). `output`: where the boundary behind
  /// it goes (null if the range has the loss layer).
  WeightedSum forward(const std::byte* input, const std::byte* batch, std::byte* output) const;

  /// Forward with graphs, then backward. `output_gradient`: of the boundary behind the range
  /// (null with the loss layer). `input_gradient`: where the boundary's gradient goes (null for
  /// the first layer).
  WeightedSum backward(const std::byte* input, const std::byte* batch,
                       const std::byte* output_gradient, std::byte* input_gradient,
                       const TakeGradient& take) const;

 private:
  struct LayerRun {
    at::Tensor input;  // undefined for a layer that reads the batch only
    std::vector<at::Tensor> params;
    LayerResult result;
  };
  LayerRun run_layer(int layer, const at::Tensor& input, const at::Tensor& batch,
                     bool with_graph) const;
  at::Tensor boundary(int cut, const std::byte* data) const;
  at::Tensor batch(const std::byte* data) const;
  WeightedSum loss_of(const LayerRun& run) const;

  const Model& model_;
  LayerRange layers_;
  LayerContext context_;
  Parameters parameters_;
};

}  // namespace spillway
