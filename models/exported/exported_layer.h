#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/graphs/exported_spec.h"
#include "spillway/model.h"

namespace spillway {

/// What a graph takes from the inputs of its layer.
struct GraphInput {
  std::size_t input = 0;              ///< position among the inputs
  std::optional<ExportedInput> part;  ///< which part of it, if it is the batch
};

/// A layer of an exported model. `constants` are those that it names. Throws Error for a graph that
/// cannot run.
std::unique_ptr<Layer> make_exported_layer(const ExportedSpec& spec, const ExportedLayer& layer,
                                           std::vector<GraphInput> inputs,
                                           std::vector<at::Tensor> constants);

/// Its loss, with its metrics.
std::unique_ptr<Layer> make_exported_loss(const ExportedSpec& spec, std::vector<GraphInput> inputs,
                                          std::vector<at::Tensor> constants);

}  // namespace spillway
