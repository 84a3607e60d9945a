#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spillway/spec.h"

namespace torch::nn {
class Sequential;
}

namespace spillway {

struct Model;

/// What goes into a Sequential, and what its output is compared with. Rows of the data are the
/// input's values followed by the targets', as tensor_data() makes them.
struct SequentialConfig {
  std::vector<std::int64_t> input_shape;  ///< of one sample: {1, 28, 28}
  DType input_dtype = DType::f32;         ///< or i64, for an embedding
  /// cross_entropy: the output is [B, ..., C] logits, the targets [B, ...] classes below C.
  /// mse: the targets are f32 and shaped as the output.
  std::string loss = "cross_entropy";
  /// Trials and measured costs tell models apart by the children's names, types, printed options,
  /// parameters and shapes. Give models that differ in something else (a function, an option that
  /// is not printed, the code of a forward) different names.
  std::string name = "";
};

/// Trains a model of your own: `make` makes it, each child becomes a layer that moves by itself,
/// and the loss comes behind the last one. The result is a ModelFactory (spillway/session.h).
///
/// Initial weights are those of `make` right after torch::manual_seed(train.seed). It is called
/// once when a trial is submitted and again when the trial starts, each time with LibTorch's global
/// generator locked away and restored, and the weights that it makes exist until they are copied,
/// beside the session's host_memory. It must make the same model every time, on any thread.
///
/// A child must compute its output [B, ...] f32 from its input and its parameters alone. Two of
/// LibTorch's own may do more: torch::nn::BatchNorm1d, 2d and 3d, whose running statistics become
/// the job's and move once a step, by their momentum and the mean over virtual nodes; and a
/// torch::nn::Dropout that is a child by itself, which draws by (train.seed, step, virtual node,
/// element). The factory throws ConfigError (`model`) naming the child for: other buffers, other
/// random numbers, a batch norm that a forward runs twice or not at all, changes of its input or
/// parameters in place, parameters that are not fp32 or that two places share, and a forward that
/// does not take and give one tensor. What it cannot see, such as a state in a plain member, is
/// left to you. A parameter without requires_grad is frozen; weight decay applies to parameters of
/// two dimensions and more.
///
/// Classes, and ids of a first child that is a torch::nn::Embedding, are checked before a device
/// sees them (ModelSpec::indices). What looks up elsewhere must do so itself: an index out of range
/// ends a trial on a CPU, and all that runs there on a GPU.
///
/// Devices that run the same child of one trial at the same time take turns.
std::function<std::unique_ptr<Model>(std::int64_t vn_size)> sequential_factory(
    std::function<torch::nn::Sequential()> make, SequentialConfig config);

}  // namespace spillway
