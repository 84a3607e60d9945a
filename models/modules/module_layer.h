#pragma once

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spillway/model.h"

namespace spillway {

/// A part of each row of the batch: `shape` (without the sample) from value `begin` on.
struct RowPart {
  std::int64_t begin = 0;
  std::vector<std::int64_t> shape;

  /// [B, values] -> [B, shape...]. At least one dimension; a copy unless whole rows are taken.
  at::Tensor of(const at::Tensor& rows) const;
  std::int64_t elements() const;
};

/// A module as a layer: [B, ...] -> [B, ...]. The layer owns it and empties its parameters, which
/// are pointed at given memory for each call, those of the layer followed by the module's running
/// statistics (models/modules/module_statistics.h). The memory must stay as it is until the graph
/// is gone; for so long the module is leased. `input`: the part of the row that it reads (null: an
/// activation).
std::unique_ptr<Layer> make_module_layer(torch::nn::AnyModule module,
                                         std::unique_ptr<RowPart> input);

/// [B, ...] -> [B, ...], keyed (models/base/dropout.h) in place of a torch::nn::Dropout.
std::unique_ptr<Layer> make_dropout_layer(double p, std::unique_ptr<RowPart> input);

/// [B, ..., C], rows -> sum of the cross entropies over all but the last dimension; weight: their
/// number. The targets are numbers of classes.
std::unique_ptr<Layer> make_cross_entropy_layer(RowPart targets);

/// [B, ...], rows -> sum of the squared errors; weight: number of elements.
std::unique_ptr<Layer> make_mse_layer(RowPart targets);

}  // namespace spillway
