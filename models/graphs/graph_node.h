#pragma once

#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "models/graphs/exported_spec.h"

namespace spillway {

/// Calls `use` with each value that the node reads.
template <typename Use>
void for_each_value(const GraphNode& node, const Use& use) {
  const auto look = [&](const GraphItem& item) {
    if (const auto* value = std::get_if<GraphValue>(&item)) use(value->number);
  };
  for (const GraphArgument& argument : node.args) {
    if (const auto* items = std::get_if<std::vector<GraphItem>>(&argument)) {
      for (const GraphItem& item : *items) look(item);
    } else {
      look(std::get<GraphItem>(argument));
    }
  }
}

/// An argument of this type; null if there is none at this position.
template <typename Item>
const Item* argument(const GraphNode& node, std::size_t position) {
  if (position >= node.args.size()) return nullptr;
  const auto* item = std::get_if<GraphItem>(&node.args[position]);
  return item == nullptr ? nullptr : std::get_if<Item>(item);
}

/// A call that multiplies by a matrix, with or without a bias.
struct LinearCall {
  std::size_t input = 0;    ///< position of the factor among the arguments
  int weight = 0;           ///< value of the matrix
  int bias = -1;            ///< value of the bias; -1: none
  bool transposed = false;  ///< false: the matrix is [out, in]; true: [in, out]
};

/// Nothing if the node is no such call.
std::optional<LinearCall> linear_call(const GraphNode& node);

}  // namespace spillway
