#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <vector>

#include "scheduler/plan/program.h"
#include "spillway/model.h"

namespace spillway {

/// Takes one virtual node through consecutive layers of a model. The same arithmetic in every
/// order and for every cut: graphs are local to one layer, and a layer's backward starts from its
/// recomputed forward. LibTorch allocates activations only; nothing outlives a call.
class RangeRunner {
 public:
  /// Parameters of layer `layer`, in spec order, as raw memory.
  using Parameters = std::function<std::vector<std::byte*>(int layer)>;
  /// Takes what the sum of one parameter grows by, of the parameter's type, while it is alive: the
  /// gradient of a trainable one (null: zero; layers come in reverse), the observation of a running
  /// statistic.
  using TakeTerm = std::function<void(int layer, int param, const std::byte* term)>;

  RangeRunner(const Model& model, LayerRange layers, LayerContext context, Parameters parameters)
      : model_(model), layers_(layers), context_(context), parameters_(std::move(parameters)) {}

  /// Memory of edges, or of their gradients, for this virtual node.
  using EdgeMemory = std::map<int, std::byte*>;

  /// Called in backward() after each layer's forward: where a pilot reads the memory in use.
  std::function<void(int layer)> after_forward;

  /// Forward without a graph. `inputs`: what the range reads and does not make, batch included.
  /// `outputs`: where those of its edges go that are read behind it. Of a range that ends with the
  /// loss layer it returns the weight of the loss, whose sum goes to `loss`: host memory, written
  /// when the stream comes to it.
  double forward(const EdgeMemory& inputs, const EdgeMemory& outputs, double* loss) const;

  /// Forward with graphs, then backward: what a layer observes in training is taken here alone, so
  /// once a step, however often its forward runs. `gradients`: of the range's outputs; and of those
  /// inputs that are read behind the range too, as far as summed there. `input_gradients`: where
  /// those of the inputs go, this range's share added. Loss and weight as of forward().
  double backward(const EdgeMemory& inputs, const EdgeMemory& gradients,
                  const EdgeMemory& input_gradients, const TakeTerm& take, double* loss) const;

 private:
  using EdgeTensors = std::map<int, at::Tensor>;
  struct LayerRun {
    std::vector<at::Tensor> inputs, params;
    LayerResult result;
  };
  LayerRun run_layer(int layer, const EdgeTensors& tensors, bool with_graph) const;
  /// Hands out the gradients of the parameters; returns those of the inputs, in order.
  std::vector<at::Tensor> run_backward(int layer, LayerRun run, const at::Tensor& gradient,
                                       const TakeTerm& take) const;
  void take_observations(int layer, LayerResult& result, const TakeTerm& take) const;
  EdgeTensors views_of(const EdgeMemory& memory) const;
  /// By edge, how many layers of the range read it.
  std::map<int, int> count_readers() const;
  /// The edge that a layer makes; -1: it is the loss.
  int output_of(int layer) const;
  double take_loss(const LayerRun& run, double* loss) const;

  const Model& model_;
  LayerRange layers_;
  LayerContext context_;
  Parameters parameters_;
};

/// Has LibTorch set up what it keeps for each thread that computes, and the system's allocator take
/// `activations` bytes for it, as far as it keeps them.
void warm_up_thread(Bytes activations);

}  // namespace spillway
