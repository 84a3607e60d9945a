#include "models/graphs/graph_node.h"

#include <cstdint>

namespace spillway {

static bool is_one(const GraphNode& node, std::size_t position) {
  const auto* number = argument<std::int64_t>(node, position);
  return number != nullptr && *number == 1;
}

std::optional<LinearCall> linear_call(const GraphNode& node) {
  const bool is_linear = node.name() == "aten::linear";
  const bool is_conv1d = node.name() == "aten::addmm" && is_one(node, 3) && is_one(node, 4);
  if (!is_linear && !is_conv1d) return std::nullopt;
  const std::size_t input = is_linear ? 0 : 1;
  const auto* weight = argument<GraphValue>(node, input + 1);
  if (weight == nullptr) return std::nullopt;
  const auto* bias = argument<GraphValue>(node, is_linear ? 2 : 0);
  return LinearCall{.input = input,
                    .weight = weight->number,
                    .bias = bias == nullptr ? -1 : bias->number,
                    .transposed = is_conv1d};
}

}  // namespace spillway
