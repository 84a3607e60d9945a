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

/// Input, output and identity of a Sequential. A row of the data is the input's values followed by
/// the targets', as tensor_data() makes it.
struct SequentialConfig {
  std::vector<std::int64_t> input_shape;  ///< of one sample: {1, 28, 28}
  DType input_dtype = DType::f32;         ///< f32, or i64 for an embedding
  /// cross_entropy: the output is [B, ..., C] logits, the targets are [B, ...] classes below C.
  /// mse: the targets are f32 and have the shape of the output.
  std::string loss = "cross_entropy";
  /// Trials and measured costs identify a model by the names, types, printed options, parameters
  /// and shapes of its children. Give models that differ in anything else (a function, an option
  /// that is not printed, the code of a forward) different names.
  std::string name = "";
};

/// Trains a model of your own: `make` makes it, each child becomes a layer that moves by itself,
/// and the loss follows the last one.
///
/// Initial weights are those of `make` after torch::manual_seed(train.seed). Spillway calls `make`
/// once when a trial is submitted and again when it starts, and saves and restores LibTorch's
/// global generator around each call. The weights exist until they are copied, outside of the
/// session's host_memory. `make` must make the same model every time, on any thread.
///
/// A child must compute its output [B, ...] f32 from its input and its parameters alone. Two kinds
/// of LibTorch's own may do more. torch::nn::BatchNorm1d, 2d and 3d have running statistics: these
/// become state of the job and move once per step, by their momentum and the mean over virtual
/// nodes. A torch::nn::Dropout that is a child by itself draws by (train.seed, step, virtual node,
/// element).
///
/// The factory throws ConfigError (`model`) with the name of the child for: other buffers; other
/// random numbers; a batch norm that a forward runs twice or not at all; in-place changes of input
/// or parameters; parameters that are not fp32 or that two places share; a forward that does not
/// take and return one tensor. It cannot detect a state in a plain member: avoid it. A parameter
/// without requires_grad is frozen. Weight decay applies to parameters of two or more dimensions.
///
/// Spillway checks classes, and ids for a first child that is a torch::nn::Embedding, before a
/// device sees them (ModelSpec::indices). Any other lookup must check its own indices: one out of
/// range ends a trial on a CPU, and everything on that device on a GPU.
///
/// Devices that run the same child of one trial at the same time take turns.
std::function<std::unique_ptr<Model>(std::int64_t vn_size)> sequential_factory(
    std::function<torch::nn::Sequential()> make, SequentialConfig config);

}  // namespace spillway
