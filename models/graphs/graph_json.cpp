#include "models/graphs/graph_json.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "models/graphs/graph_node.h"
#include "models/graphs/json_fields.h"
#include "spillway/error.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr IntRange kValue{0, 1 << 24};
constexpr IntRange kOutputs{0, 1 << 16};

/// "graph 3, node 7 (aten::add.Tensor)"
std::string place_of(const std::string& graph, std::size_t number, const GraphNode& node) {
  return fmt::format("{}, node {} ({})", graph, number, node.name());
}

/// An object with one key.
GraphItem special_of(const json& object, const std::string& place) {
  JsonFields fields(object, place);
  GraphItem item;
  if (object.size() != 1) fields.fail("has an argument that is an object without one key");
  if (fields.has("value")) {
    item = GraphValue{static_cast<int>(fields.integer("value", kValue))};
  } else if (fields.has("float")) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double values[] = {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
    item = values[fields.choice("float", {"inf", "-inf", "nan"})];
  } else if (fields.has("dtype")) {
    item = GraphWord{GraphWord::Kind::dtype, fields.text("dtype")};
  } else if (fields.has("layout")) {
    item = GraphWord{GraphWord::Kind::layout, fields.text("layout")};
  } else if (fields.has("memory_format")) {
    item = GraphWord{GraphWord::Kind::memory_format, fields.text("memory_format")};
  } else if (fields.has("device")) {
    if (!fields.flag("device")) fields.fail("device is false, must be true");
    item = GraphDevice{};
  } else {
    fields.fail("has an argument that is an object without a known key");
  }
  return item;
}

GraphItem item_of(const json& value, const std::string& place) {
  if (value.is_null()) return std::monostate{};
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return special_of(value, place);
  if (!is_int64(value))
    throw Error(place + ": has an argument that is a list in a list, or above 64 bits");
  return value.get<std::int64_t>();
}

GraphArgument argument_of(const json& value, const std::string& place) {
  if (!value.is_array()) return item_of(value, place);
  std::vector<GraphItem> items;
  for (const json& item : value) items.push_back(item_of(item, place));
  return items;
}

GraphNode node_of(const json& object, const std::string& graph, std::size_t number) {
  JsonFields fields(object, fmt::format("{}, node {}", graph, number));
  GraphNode node{.op = fields.text("op"), .overload = fields.text("overload")};
  if (fields.has("outputs")) {
    node.num_outputs = static_cast<int>(fields.integer("outputs", kOutputs));
  }
  for (const json& value : fields.list("args")) {
    node.args.push_back(argument_of(value, place_of(graph, number, node)));
  }
  fields.finish();
  return node;
}

}  // namespace

ExportedGraph graph_of(const json& object, const std::string& place) {
  JsonFields fields(object, place);
  ExportedGraph graph;
  for (const json& node : fields.list("nodes")) {
    graph.nodes.push_back(node_of(node, place, graph.nodes.size()));
  }
  graph.result = static_cast<int>(fields.integer("result", kValue));
  fields.finish();
  graph.json = object.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return graph;
}

void check_values(const ExportedGraph& graph, int num_given, const std::string& place) {
  std::int64_t num_values = num_given;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& node = graph.nodes[n];
    for_each_value(node, [&](int number) {
      if (number < num_values) return;
      throw Error(fmt::format("{}: reads value {}, but only {} exist before it",
                              place_of(place, n, node), number, num_values));
    });
    num_values += node.num_outputs;
  }
  if (graph.result >= num_values) {
    throw Error(
        fmt::format("{}: gives value {}, but has only {}", place, graph.result, num_values));
  }
}

}  // namespace spillway
