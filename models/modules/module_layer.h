#pragma once

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "spillway/graph.h"
#include "spillway/model.h"

namespace spillway {

/// A part of each row of the batch: `shape` (without the sample) from value `begin` on.
struct RowPart {
  std::int64_t begin = 0;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;  ///< f32 or i64

  /// [B, values] -> [B, shape...] of this type; a copy unless whole rows of it are taken.
  at::Tensor of(const at::Tensor& rows) const;
  std::int64_t elements() const;
};

/// What a forward takes from the inputs of its layer.
struct Argument {
  std::size_t input = 0;        ///< position among the inputs
  std::optional<RowPart> part;  ///< which part of it, if it is the batch
};

/// A module as a layer: [B, ...] -> [B, ...], with keyed dropout. The layer owns it and empties its
/// parameters, which are pointed at given memory for each call: its parameters are those of the
/// module, then its running statistics (models/modules/module_statistics.h), then its buffers. The
/// memory must stay as it is until the graph is gone; for so long the module is leased.
std::unique_ptr<Layer> make_module_layer(torch::nn::AnyModule module,
                                         std::vector<Argument> arguments);

/// A function as a layer: [B, ...] -> [B, ...], with keyed dropout.
std::unique_ptr<Layer> make_function_layer(Graph::Function function,
                                           std::vector<Argument> arguments);

/// A function as the loss layer, with metrics of the same inputs.
std::unique_ptr<Layer> make_loss_layer(LossFunction function, std::vector<Metric> metrics,
                                       std::vector<Argument> arguments);

}  // namespace spillway
