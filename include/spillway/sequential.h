#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "spillway/loss.h"
#include "spillway/model_factory.h"
#include "spillway/spec.h"

namespace torch::nn {
class Sequential;
}

namespace spillway {

/// Input, output and identity of a Sequential. A row of the data is the input's values followed by
/// the targets', as tensor_data() makes it.
struct SequentialConfig {
  std::vector<std::int64_t> input_shape;  ///< of one sample: {1, 28, 28}
  DType input_dtype = DType::f32;         ///< f32, or i64 for an embedding
  /// cross_entropy: the output is [B, ..., C] logits, the targets are [B, ...] classes below C.
  /// mse: the targets are f32 and have the shape of the output. With a `loss_function`, its name.
  std::string loss = "cross_entropy";
  /// Trials and measured costs identify a model by the names, types, printed options, parameters
  /// and shapes of its children. Give models that differ in anything else (a function, an option
  /// that is not printed, the code of a forward) different names.
  std::string name = "";
  /// A loss of your own, called with the output and the targets; null: as `loss` says.
  LossFunction loss_function = nullptr;
  std::vector<std::int64_t> target_shape = {};  ///< of one sample; read with a `loss_function`
  DType target_dtype = DType::f32;              ///< likewise
  /// Computed in evaluations from the output and the targets.
  std::vector<Metric> metrics = {};
};

/// Trains a model of your own: `make` makes it, each child becomes a layer that moves by itself,
/// and the loss follows the last one. The model is the chain of the children as a Graph:
/// spillway/graph.h says what modules may do, how weights begin, and when `make` is called.
///
/// The weights that `make` makes exist until they are copied, outside of the session's host_memory.
/// The factory throws ConfigError (`model`) with the name of the child.
///
/// Spillway checks classes, and ids for a first child that is a torch::nn::Embedding, before a
/// device sees them (ModelSpec::indices). Any other lookup must check its own indices: one out of
/// range ends a trial on a CPU, and everything on that device on a GPU.
ModelFactory sequential_factory(std::function<torch::nn::Sequential()> make,
                                SequentialConfig config);

}  // namespace spillway
