#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "models/exported/exported_spec.h"

namespace spillway {

/// Reads a graph. Throws Error with the place of the problem. `place`: "graph 3".
ExportedGraph graph_of(const nlohmann::json& json, const std::string& place);

/// Throws Error, with `place`, unless each value of the graph exists before it is read: `num_given`
/// are those of its layer.
void check_values(const ExportedGraph& graph, int num_given, const std::string& place);

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

}  // namespace spillway
