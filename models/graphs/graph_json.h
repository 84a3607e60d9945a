#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "models/graphs/exported_spec.h"

namespace spillway {

/// Reads a graph. Throws Error with the place of the problem. `place`: "graph 3".
ExportedGraph graph_of(const nlohmann::json& json, const std::string& place);

/// Throws Error, with `place`, unless each value of the graph exists before it is read: `num_given`
/// are those of its layer.
void check_values(const ExportedGraph& graph, int num_given, const std::string& place);

}  // namespace spillway
