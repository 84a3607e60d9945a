#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "scheduler/plan/program.h"
#include "spillway/model.h"

namespace spillway {

/// Runs one virtual node through consecutive layers of a model. The arithmetic is the same in every
/// order and for every cut: graphs are local to one layer, a layer's backward starts from its
/// recomputed forward, and terms of pieces are added by one tree. LibTorch allocates activations
/// only; nothing outlives a call.
class RangeRunner {
 public:
  /// Parameters of layer `layer`, in spec order, as raw memory.
  using Parameters = std::function<std::vector<std::byte*>(int layer)>;
  /// Receives what is added to the sum of one parameter, in the parameter's type; valid during the
  /// call. For a trainable parameter it is the gradient (null: zero; layers come in reverse), for a
  /// running statistic the observation.
  using TakeTerm = std::function<void(int layer, int param, const std::byte* term)>;

  RangeRunner(const Model& model, LayerRange layers, LayerContext context, Parameters parameters)
      : model_(model), layers_(layers), context_(context), parameters_(std::move(parameters)) {}

  /// Memory of parts of edges, or of their gradients, for this virtual node.
  using EdgeMemory = std::map<EdgePart, std::byte*>;

  /// Called after each layer's forward with a graph; a pilot reads the memory in use there.
  std::function<void(int layer)> after_forward;
  /// Called in forward() with the prediction, if the range ends with the loss layer.
  std::function<void(const at::Tensor& prediction)> take_prediction;

  /// Forward without a graph. `inputs`: the edges that the range reads but does not make, batch
  /// included. `outputs`: memory for its edges that later layers read. If the range ends with the
  /// loss layer, returns the weight of the loss and writes its sum to `loss`, and the sums of the
  /// metrics to `metrics` unless it is empty; both are host memory, written in the order of the
  /// stream.
  double forward(const EdgeMemory& inputs, const EdgeMemory& outputs, double* loss,
                 std::span<double* const> metrics = {}) const;

  /// A layer after its forward, with its graph.
  struct LayerRun {
    std::vector<at::Tensor> inputs, params;
    LayerResult result;
  };
  /// The graphs of the range's layers, in order. They need the memory of the inputs and parameters.
  using Graphs = std::vector<LayerRun>;
  /// Like forward(), with graphs; not for a range with the loss. backward() takes them.
  Graphs forward_with_graphs(const EdgeMemory& inputs, const EdgeMemory& outputs) const;

  /// Forward with graphs, then backward. Observations of running statistics are taken here only, so
  /// once per step, however often forward runs. `gradients`: those of the range's outputs, and the
  /// partial sums of inputs that later layers read too. `input_gradients`: memory for the gradients
  /// of the inputs, this range's share added. Loss and weight as in forward().
  double backward(const EdgeMemory& inputs, const EdgeMemory& gradients,
                  const EdgeMemory& input_gradients, const TakeTerm& take, double* loss) const {
    return backward(forward_with_graphs(inputs, {}), gradients, input_gradients, take, loss);
  }
  /// Only backward.
  double backward(Graphs graphs, const EdgeMemory& gradients, const EdgeMemory& input_gradients,
                  const TakeTerm& take, double* loss) const;

 private:
  /// By edge: its value or gradient, as far as it is there.
  using EdgeSums = std::map<int, TreeSum<at::Tensor>>;
  LayerRun run_layer(int layer, const EdgeSums& values, bool with_graph) const;
  /// Passes on the gradients of the parameters; returns those of the inputs, in order.
  std::vector<at::Tensor> run_backward(int layer, LayerRun run, const at::Tensor& gradient,
                                       const TakeTerm& take) const;
  void take_observations(int layer, LayerResult& result, const TakeTerm& take) const;
  /// Sums over `leaves` of an edge, beginning with what is in memory.
  EdgeSums views_of(const EdgeMemory& memory, int EdgeSpec::*leaves) const;
  void add_output(int layer, const at::Tensor& output, EdgeSums& values) const;
  void add_input_gradient(int layer, int edge, at::Tensor gradient, EdgeSums& gradients) const;
  void copy_parts(int edge, const EdgeSums& from, const EdgeMemory& to) const;
  /// The gradient of a layer's output; undefined if there is none.
  at::Tensor take_gradient(int layer, EdgeSums& gradients) const;
  /// By edge: the number of layers of the range that read it.
  std::map<int, int> count_readers() const;
  /// The edge that a layer makes; -1 for the loss layer.
  int output_of(int layer) const;
  double take_loss(const LayerRun& run, double* loss) const;
  void take_metrics(const LayerRun& run, std::span<double* const> metrics) const;

  const Model& model_;
  LayerRange layers_;
  LayerContext context_;
  Parameters parameters_;
};

/// Lets LibTorch create its state per computing thread, and lets the system's allocator obtain
/// `activations` bytes for the thread ahead of time.
void warm_up_thread(Bytes activations);

}  // namespace spillway
