#include "models/exported/graph_adapter.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/exported/graph_json.h"

namespace spillway {
namespace {

using nlohmann::json;

template <typename Item>
const Item* argument(const GraphNode& node, std::size_t position) {
  if (position >= node.args.size()) return nullptr;
  const auto* item = std::get_if<GraphItem>(&node.args[position]);
  return item == nullptr ? nullptr : std::get_if<Item>(item);
}

bool is_one(const GraphNode& node, std::size_t position) {
  const auto* number = argument<std::int64_t>(node, position);
  return number != nullptr && *number == 1;
}

json value(int number) { return {{"value", number}}; }

/// Copies a graph call by call, with new numbers for its values.
class GraphCopy {
 public:
  GraphCopy(const ExportedGraph& graph, const GraphAdaptation& adaptation)
      : from_(graph), adaptation_(adaptation), num_values_(adaptation.num_given) {
    const int num_new = 2 * static_cast<int>(adaptation.weights.size());
    for (int given = 0; given < adaptation.num_given; ++given)
      numbers_.push_back(given < adaptation.num_before ? given : given + num_new);
    num_values_ += num_new;
  }

  ExportedGraph copy() && {
    const json from = json::parse(from_.json);
    for (std::size_t n = 0; n < from_.nodes.size(); ++n)
      copy_node(from_.nodes[n], from["nodes"][n]);
    const json result{{"nodes", std::move(nodes_)},
                      {"result", numbers_[static_cast<std::size_t>(from_.result)]}};
    return graph_of(result, "adapted graph");
  }

 private:
  void renumber(json& argument) const {
    if (argument.is_array()) {
      for (json& item : argument) renumber(item);
    } else if (argument.is_object() && argument.contains("value")) {
      json& number = argument["value"];
      number = numbers_[number.get<std::size_t>()];
    }
  }

  void copy_node(const GraphNode& node, json call) {
    renumber(call["args"]);
    for (int output = 0; output < node.num_outputs; ++output) numbers_.push_back(num_values_++);
    const auto linear = linear_call(node);
    const json args = call["args"];
    nodes_.push_back(std::move(call));
    if (!linear) return;
    const auto found = std::ranges::find(adaptation_.weights, linear->weight);
    if (found == adaptation_.weights.end()) return;
    const auto number = static_cast<int>(found - adaptation_.weights.begin());
    numbers_.back() = add_adapter(args[linear->input], numbers_.back(), number);
  }

  /// Returns the value of the sum.
  int add_adapter(json input, int output, int number) {
    const int a = adaptation_.num_before + 2 * number;
    if (adaptation_.dropout > 0) input = value(add(kDropout, "", {input, adaptation_.dropout}));
    const int low = add("aten::linear", "", {input, value(a), nullptr});
    const int high = add("aten::linear", "", {value(low), value(a + 1), nullptr});
    const int scaled = add("aten::mul", "Tensor", {value(high), adaptation_.scale});
    return add("aten::add", "Tensor", {value(output), value(scaled), 1});
  }

  int add(const char* op, const char* overload, json args) {
    nodes_.push_back({{"op", op}, {"overload", overload}, {"args", std::move(args)}});
    return num_values_++;
  }

  const ExportedGraph& from_;
  const GraphAdaptation& adaptation_;
  json nodes_ = json::array();
  std::vector<int> numbers_;  // by value of the old graph
  int num_values_;            // of the new one
};

}  // namespace

std::optional<LinearCall> linear_call(const GraphNode& node) {
  const bool is_linear = node.name() == "aten::linear";
  const bool is_conv1d = node.name() == "aten::addmm" && is_one(node, 3) && is_one(node, 4);
  if (!is_linear && !is_conv1d) return std::nullopt;
  const std::size_t input = is_linear ? 0 : 1;
  const auto* weight = argument<GraphValue>(node, input + 1);
  if (weight == nullptr) return std::nullopt;
  return LinearCall{.input = input, .weight = weight->number, .transposed = is_conv1d};
}

ExportedGraph adapted_graph(const ExportedGraph& graph, const GraphAdaptation& adaptation) {
  return GraphCopy(graph, adaptation).copy();
}

}  // namespace spillway
