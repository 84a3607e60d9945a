#include "trainer/planning/check_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/planning/largest_layer.h"

namespace spillway {
namespace {

/// In double: the product may exceed 64 bits.
double bytes_of(const TensorSpec& tensor) {
  auto bytes = static_cast<double>(size_of(tensor.dtype));
  for (const auto& dim : tensor.dims) bytes *= static_cast<double>(dim.size);
  return bytes;
}

/// Weights, gradient sums and boundaries.
double bytes_of(const ModelSpec& model, const LayerSpec& layer) {
  double bytes = 0;
  for (const int param : layer.params) {
    const ParamSpec& spec = model.params[at(param)];
    bytes += bytes_of(spec.tensor) + (spec.has_sum() ? bytes_of(spec.master()) : 0);
  }
  for (const auto* edges : {&layer.inputs, &layer.outputs}) {
    for (const int edge : *edges) bytes += bytes_of(model.edges[at(edge)].tensor);
  }
  return bytes;
}

}  // namespace

void check_sizes(const std::string& trial, const ModelSpec& model, int virtual_nodes,
                 const std::vector<Bytes>& device_budgets) {
  constexpr double kMeasurable = 1 << 30, kMaxBytes = 0x1p62, kMaxOps = 1 << 24;
  const Bytes budget = *std::ranges::max_element(device_budgets);
  for (const LayerSpec& layer : model.layers) {
    const double bytes = bytes_of(model, layer);
    if (bytes > std::max(kMeasurable, static_cast<double>(budget)))
      throw DoesNotFit(fmt::format("trial {}, even without the activations of layer {} ({}),",
                                   trial, layer.name, largest_weight(model, layer)),
                       Tier::device, static_cast<Bytes>(std::min(bytes, kMaxBytes)), budget);
  }
  const double ops = 2.0 * virtual_nodes * static_cast<double>(model.layers.size());
  if (ops > kMaxOps) {
    const double most = std::floor(kMaxOps / 2 / static_cast<double>(model.layers.size()));
    throw ConfigError("train.virtual_nodes", 0,
                      fmt::format("is {}, too many for {} layers; use at most {}", virtual_nodes,
                                  model.layers.size(), static_cast<int>(most)));
  }
}

}  // namespace spillway
