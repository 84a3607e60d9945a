#include "models/exported/graph_adapter.h"

#include <algorithm>

#include "models/graphs/graph_node.h"
#include "models/graphs/graph_writer.h"

namespace spillway {
namespace {

/// Adds adapter `number` to the product `output` of `input`, and returns the value of the sum.
int add_adapter(GraphWriter& writer, const GraphAdaptation& adaptation, int number,
                GraphWriter::Json input, int output) {
  const int a = adaptation.num_before + 2 * number;
  if (adaptation.dropout > 0)
    input = value_json(writer.add(kDropout, "", {input, adaptation.dropout}));
  const int low = writer.add("aten::linear", "", {input, value_json(a), nullptr});
  const int high = writer.add("aten::linear", "", {value_json(low), value_json(a + 1), nullptr});
  const int scaled = writer.add("aten::mul", "Tensor", {value_json(high), adaptation.scale});
  return writer.add("aten::add", "Tensor", {value_json(output), value_json(scaled), 1});
}

}  // namespace

ExportedGraph adapted_graph(const ExportedGraph& graph, const GraphAdaptation& adaptation) {
  GraphWriter writer(graph, adaptation.num_given);
  for (int given = 0; given < adaptation.num_before; ++given) writer.set(given, writer.give());
  for (std::size_t i = 0; i < 2 * adaptation.weights.size(); ++i) writer.give();
  for (int given = adaptation.num_before; given < adaptation.num_given; ++given)
    writer.set(given, writer.give());
  int output = adaptation.num_given;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& node = graph.nodes[n];
    const auto args = writer.copy(n)["args"];
    const auto linear = linear_call(node);
    const auto found =
        linear ? std::ranges::find(adaptation.weights, linear->weight) : adaptation.weights.end();
    if (found != adaptation.weights.end()) {
      const auto number = static_cast<int>(found - adaptation.weights.begin());
      writer.set(output, add_adapter(writer, adaptation, number, args[linear->input],
                                     writer.number(output)));
    }
    output += node.num_outputs;
  }
  return writer.graph(writer.number(graph.result));
}

}  // namespace spillway
