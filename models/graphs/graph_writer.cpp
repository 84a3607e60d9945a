#include "models/graphs/graph_writer.h"

#include <utility>

#include "models/graphs/graph_json.h"

namespace spillway {

GraphWriter::GraphWriter(const ExportedGraph& from, int num_given)
    : from_(from), calls_(Json::parse(from.json)["nodes"]) {
  for (const GraphNode& node : from.nodes) {
    firsts_.push_back(num_given);
    num_given += node.num_outputs;
  }
}

void GraphWriter::renumber(Json& argument) const {
  if (argument.is_array()) {
    for (Json& item : argument) renumber(item);
  } else if (argument.is_object() && argument.contains("value")) {
    Json& number = argument["value"];
    number = numbers_.at(number.get<int>());
  }
}

GraphWriter::Json& GraphWriter::copy(std::size_t node) {
  Json call = calls_[node];
  renumber(call["args"]);
  for (int output = 0; output < from_.nodes[node].num_outputs; ++output) {
    numbers_[firsts_[node] + output] = num_values_++;
  }
  return nodes_.emplace_back(std::move(call));
}

int GraphWriter::add(const char* op, const char* overload, Json args) {
  nodes_.push_back({{"op", op}, {"overload", overload}, {"args", std::move(args)}});
  return num_values_++;
}

ExportedGraph GraphWriter::graph(int result) const {
  return graph_of({{"nodes", nodes_}, {"result", result}}, "a graph that was rewritten");
}

}  // namespace spillway
