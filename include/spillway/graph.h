#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/loss.h"
#include "spillway/model_factory.h"
#include "spillway/spec.h"

namespace spillway {

/// A model as a graph of modules and functions, built front to back. Each call appends a layer that
/// moves by itself, and runs it on zeros to learn its shape. Tensors are [B, ...], f32 unless they
/// are inputs of type i64. Throws ConfigError (`model`) with the name of the layer.
class Graph {
 public:
  /// An input, or the output of a layer.
  struct Node {
    int index = -1;  ///< in the order of the calls
  };
  /// A function of its inputs alone. Any thread may call it at any time.
  using Function = std::function<at::Tensor(std::span<const at::Tensor> inputs)>;

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// A part of each sample, of this shape. The parts of a sample follow each other in the order of
  /// these calls. The data has i64 values if all parts do, else f32 values; parts of type i64 are
  /// then whole numbers below 2^24, which f32 holds exactly.
  Node input(std::vector<std::int64_t> shape, DType dtype = DType::f32);
  /// An input of whole numbers from 0 to `limit` - 1: classes, or rows of an embedding. Checked
  /// before a device sees them (ModelSpec::indices).
  Node indices(std::vector<std::int64_t> shape, std::int64_t limit);

  /// A module, with one to four inputs and one output. It may have parameters, also ones that other
  /// layers have too (tied); running statistics of torch::nn::BatchNorm1d, 2d and 3d, which move
  /// once per step, by their momentum and the mean over virtual nodes; constant buffers of type f32
  /// or i64; torch::nn::Dropout, Dropout2d and functional dropout, up to 16 calls, which draw by
  /// (train.seed, step, virtual node, element) in training and do nothing in evaluations.
  /// Parameters without requires_grad are frozen. Weight decay applies to parameters of two or more
  /// dimensions.
  ///
  /// With TrainConfig::dtype bf16 a module computes as after Module::to(torch::kBFloat16): its
  /// parameters, f32 buffers, f32 inputs and output are bf16. Only batch norms keep parameters and
  /// running statistics in f32. Inputs of type i64 stay. The weights that updates change are f32.
  ///
  /// Rejected: other random numbers; changes in place of inputs, parameters or buffers; parameters
  /// that are not f32, or are views of another one; a batch norm that a forward runs twice or not
  /// at all. It cannot detect a state in a plain member: avoid it. Devices that run the same module
  /// of one trial at the same time take turns.
  template <typename Module>
  Node add(std::string name, const torch::nn::ModuleHolder<Module>& module,
           std::vector<Node> inputs) {
    return add(std::move(name), torch::nn::AnyModule(module), std::move(inputs));
  }
  /// Like above, for a module whose type is not known.
  Node add(std::string name, torch::nn::AnyModule module, std::vector<Node> inputs);
  /// A function without parameters: a sum, a concatenation, a mask. With bf16 its f32 inputs and
  /// its output are rounded to bf16.
  Node apply(std::string name, Function function, std::vector<Node> inputs);
  /// The loss, the last call. It reads f32, also with TrainConfig::dtype bf16. `metrics` are
  /// computed in evaluations, from the inputs of the loss; a layer need not read all of its inputs.
  /// predict() gives the first input.
  void loss(std::string name, LossFunction function, std::vector<Node> inputs,
            std::vector<Metric> metrics = {});

  /// Sizes of a node without the first, the batch.
  std::vector<std::int64_t> shape(Node node) const;

 private:
  friend struct GraphAccess;  // models/modules/graph_impl.h
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Trains the model that `make` builds. Initial weights are those of `make` after
/// torch::manual_seed(train.seed). Spillway calls `make` once when a trial is submitted and again
/// when it starts, and once more for each layer with tied parameters; it saves and restores
/// LibTorch's global generator around each call. `make` must build the same model every time, on
/// any thread.
///
/// Trials and measured costs identify a model by the names, types, printed options, parameters and
/// shapes of its layers. Give models that differ in anything else (the code of a function or of a
/// forward) different names.
ModelFactory graph_factory(std::function<void(Graph&)> make, std::string name = "");

}  // namespace spillway
