#include "models/pieces/piece_writer.h"

#include <algorithm>
#include <cassert>
#include <initializer_list>
#include <limits>
#include <utility>

#include "models/graphs/graph_node.h"

namespace spillway {
namespace {

using Json = GraphWriter::Json;

constexpr std::size_t kTraining = 0;

Json type_json(const char* name) { return {{"dtype", name}}; }

const char* name_of(at::ScalarType type) { return type == at::kBFloat16 ? "bfloat16" : "float32"; }

DType dtype_of(at::ScalarType type) { return type == at::kBFloat16 ? DType::bf16 : DType::f32; }

int converted(GraphWriter& writer, int value, const char* type) {
  return writer.add("aten::to", "dtype",
                    {value_json(value), type_json(type), false, false, nullptr});
}

int as_float(GraphWriter& writer, int value, at::ScalarType type) {
  return type == at::kFloat ? value : converted(writer, value, "float32");
}

/// Indices as rows of a piece that begins at `first` and has `size`.
struct Rows {
  int index;   ///< of the piece; any of its rows for an index of another piece
  int is_own;  ///< whether the index is one of the piece
};

Rows rows_of(GraphWriter& writer, int indices, std::int64_t first, std::int64_t size) {
  const int index = writer.add("aten::sub", "Scalar", {value_json(indices), first, 1});
  const int from = writer.add("aten::ge", "Scalar", {value_json(index), 0});
  const int to = writer.add("aten::lt", "Scalar", {value_json(index), size});
  return {writer.add("aten::clamp", "", {value_json(index), 0, size - 1}),
          writer.add("aten::logical_and", "", {value_json(from), value_json(to)})};
}

}  // namespace

ExportedLayer PieceWriter::before(const std::string& name) {
  Content content;
  if (pieces_.kind == PiecesKind::head) content.given = facts_.unread();  // nothing comes after
  for (std::size_t s = 0; s < 2; ++s) content.nodes[s] = side(s).before;
  content.write = [&](std::size_t s, GraphWriter& writer, const std::vector<int>&) {
    for (const int n : side(s).before) copy(s, n, writer);
    return writer.number(side(s).computed);
  };
  ExportedLayer made = layer_of(name, content, [](int param) { return param; });
  made.draws_as = facts_.layer->draws_as;
  made.shape = side_facts(kTraining).shape(side(kTraining).computed);
  made.dtype = dtype_of(side_facts(kTraining).type(side(kTraining).computed));
  return made;
}

ExportedLayer PieceWriter::piece(const std::string& name, int piece, ExportedSource computed,
                                 ExportedSource targets, const PartOf& part_of) {
  Content content;
  if (reads_computed()) content.added.push_back(computed_by(computed));
  const bool is_head = pieces_.kind == PiecesKind::head;
  if (is_head) content.added.push_back({.source = targets});
  for (std::size_t s = 0; s < 2; ++s) {
    content.nodes[s] = side(s).shared;
    content.nodes[s].insert(side(s).region.nodes.begin(), side(s).region.nodes.end());
    for (const auto& [value, division] : side(s).region.divided) {
      if (side_facts(s).is_given(value)) content.given.insert(value);
    }
    for (const int value : side(s).region.whole) {
      if (side_facts(s).is_given(value)) content.given.insert(value);
    }
  }
  content.write = [&](std::size_t s, GraphWriter& writer, const std::vector<int>& added) {
    write_parts(s, piece, writer);
    if (pieces_.kind == PiecesKind::embedding) return write_look_up(s, piece, writer);
    if (is_head) return write_classes(s, piece, added.back(), writer);
    return pieces_.makes_terms() ? write_term(s, writer) : writer.number(side(s).joined);
  };
  ExportedLayer made = layer_of(name, content, [&](int param) {
    return pieces_.params.contains(param) ? part_of(param, piece) : param;
  });
  const GraphFacts& facts = side_facts(kTraining);
  const int joined = side(kTraining).joined;
  made.shape = facts.shape(joined);
  made.piece = piece;
  made.pieces = pieces_.pieces;
  made.makes_term = pieces_.makes_terms();
  if (pieces_.kind == PiecesKind::linear) {
    made.shape.back() /= pieces_.pieces;
    made.dtype = dtype_of(facts.type(joined));
  }
  if (is_head) {
    std::int64_t targets_of_piece = 1;
    for (std::size_t d = 0; d + 1 < made.shape.size(); ++d) targets_of_piece *= made.shape[d];
    made.shape = {targets_of_piece, spec_.has_accuracy ? 4 : 2};
  }
  return made;
}

ExportedLayer PieceWriter::after(const std::string& name, ExportedSource computed,
                                 const std::vector<ExportedSource>& joined) {
  Content content;
  for (const ExportedSource source : joined) content.added.push_back({.source = source});
  content.given = facts_.unread();
  const std::size_t num_pieces = joined.size();
  bool reads = false;
  for (std::size_t s = 0; s < 2; ++s) {
    content.nodes[s] = side(s).after;
    for (const int n : side(s).after)
      for_each_value(side_facts(s).node(n),
                     [&](int value) { reads = reads || value == side(s).computed; });
    if (const int n = side(s).node; n >= 0) {
      const auto call = linear_call(side_facts(s).node(n));
      if (call && call->bias >= 0) content.given.insert(call->bias);
    }
  }
  if (reads) content.added.push_back(computed_by(computed));
  content.write = [&](std::size_t s, GraphWriter& writer, const std::vector<int>& added) {
    const std::vector<int> of_pieces(added.begin(),
                                     added.begin() + static_cast<std::ptrdiff_t>(num_pieces));
    writer.set(side(s).joined, write_joined(s, of_pieces, writer));
    for (const int n : side(s).after) copy(s, n, writer);
    return writer.number(side_facts(s).graph().result);
  };
  ExportedLayer made = layer_of(name, content, [](int param) { return param; });
  made.shape = facts_.layer->shape;
  made.dtype = facts_.layer->dtype;
  made.draws_as = facts_.layer->draws_as;
  return made;
}

ExportedLayer PieceWriter::layer_of(const std::string& name, const Content& content,
                                    const std::function<int(int param)>& param_of) {
  std::set<int> given = content.given;
  std::array<std::set<int>, 2> made;  // values that are added
  for (const Added& each : content.added) {
    for (std::size_t s = 0; s < 2; ++s) made[s].insert(each.stands_for[s]);
  }
  for (std::size_t s = 0; s < 2; ++s) {
    for (const int n : content.nodes[s]) {
      for_each_value(side_facts(s).node(n), [&](int value) {
        if (side_facts(s).is_given(value) && !made[s].contains(value)) given.insert(value);
      });
    }
  }
  ExportedLayer layer{.name = name};
  for (const Added& each : content.added) layer.inputs.push_back(each.source);
  for (const int value : given) {
    if (facts_.is_input(value)) {
      layer.inputs.push_back(facts_.layer->inputs[static_cast<std::size_t>(value)]);
    } else if (const int param = facts_.layer->param_of(value); param >= 0) {
      layer.params.push_back(param_of(param));
    } else {
      const int constant = value - facts_.num_inputs() - facts_.num_params();
      layer.constants.push_back(facts_.layer->constants[static_cast<std::size_t>(constant)]);
    }
  }
  assert(!layer.inputs.empty());
  layer.train = write_graph(content, 0, given);
  layer.eval = write_graph(content, 1, given);
  layer.differentiable = is_differentiable(layer);
  return layer;
}

int PieceWriter::write_graph(const Content& content, std::size_t s, const std::set<int>& given) {
  const GraphFacts& facts = side_facts(s);
  GraphWriter writer(facts.graph(), facts.num_given());
  std::vector<int> added;
  for (const Added& each : content.added) {
    added.push_back(writer.give());
    if (each.stands_for[s] >= 0) writer.set(each.stands_for[s], added.back());
  }
  for (const int value : given) writer.set(value, writer.give());
  const auto num_given = static_cast<int>(added.size() + given.size());
  int result = content.write(s, writer, added);
  if (result < num_given) result = writer.add("aten::alias", "", {value_json(result)});
  return add_graph(writer.graph(result));
}

/// Equal layers share their graphs.
int PieceWriter::add_graph(ExportedGraph graph) {
  const auto known = std::ranges::find(spec_.graphs, graph.json, &ExportedGraph::json);
  if (known != spec_.graphs.end()) return static_cast<int>(known - spec_.graphs.begin());
  spec_.graphs.push_back(std::move(graph));
  return static_cast<int>(spec_.graphs.size()) - 1;
}

bool PieceWriter::is_differentiable(const ExportedLayer& layer) const {
  return std::ranges::any_of(
             layer.params,
             [&](int p) { return spec_.params[static_cast<std::size_t>(p)].trainable; }) ||
         std::ranges::any_of(layer.inputs, [&](ExportedSource source) {
           return source.layer >= 0 &&
                  spec_.layers[static_cast<std::size_t>(source.layer)].differentiable;
         });
}

/// Dropouts keep the number that they have in the divided layer.
Json& PieceWriter::copy(std::size_t s, int n, GraphWriter& writer) const {
  const auto& nodes = side_facts(s).graph().nodes;
  Json& call = writer.copy(static_cast<std::size_t>(n));
  if (nodes[static_cast<std::size_t>(n)].op == kDropout && call["args"].size() == 2)
    call["args"].push_back(
        std::ranges::count(nodes.begin(), nodes.begin() + n, kDropout, &GraphNode::op));
  return call;
}

void PieceWriter::write_parts(std::size_t s, int piece, GraphWriter& writer) const {
  const GraphRegion& region = side(s).region;
  for (const int n : side(s).shared) copy(s, n, writer);
  for (const int value : region.sliced) {
    writer.set(value, write_slice(side_facts(s).shape(value), region.divided.at(value), piece,
                                  writer.number(value), writer));
  }
  for (const int n : region.nodes) {
    Json& args = copy(s, n, writer)["args"];
    for (const NumberChange& change : region.changes) {
      if (change.node != n) continue;
      Json& arg = args[change.argument];
      (change.item < 0 ? arg : arg[static_cast<std::size_t>(change.item)]) = change.number;
    }
  }
}

int PieceWriter::write_slice(Shape shape, const Division& division, int piece, int value,
                             GraphWriter& writer) const {
  const std::int64_t size = part_size(shape, division, pieces_.pieces);
  const std::int64_t of_block = size / division.blocks;
  const auto slice = [&](int from, int dim) {
    return writer.add("aten::slice", "Tensor",
                      {value_json(from), dim, of_block * piece, of_block * (piece + 1), 1});
  };
  if (division.blocks == 1) return slice(value, division.dim);
  const auto reshape = [&](int from) {
    return writer.add("aten::reshape", "", {value_json(from), Json(shape)});
  };
  shape[static_cast<std::size_t>(division.dim)] /= division.blocks;
  shape.insert(shape.begin() + division.dim, division.blocks);
  const int part = slice(reshape(value), division.dim + 1);
  shape.erase(shape.begin() + division.dim);
  shape[static_cast<std::size_t>(division.dim)] = size;
  return reshape(part);
}

int PieceWriter::write_term(std::size_t s, GraphWriter& writer) const {
  const GraphNode& node = side_facts(s).node(side(s).node);
  const auto call = linear_call(node);
  const int input = writer.number(argument<GraphValue>(node, call->input)->number);
  const Json factor = value_json(input), matrix = value_json(writer.number(call->weight));
  const int term = call->transposed ? writer.add("aten::mm", "", {factor, matrix})
                                    : writer.add("aten::linear", "", {factor, matrix, nullptr});
  return as_float(writer, term, side_facts(s).type(side(s).joined));
}

int PieceWriter::write_look_up(std::size_t s, int piece, GraphWriter& writer) const {
  const GraphFacts& facts = side_facts(s);
  const GraphNode& node = facts.node(side(s).node);
  const int table = argument<GraphValue>(node, 0)->number;
  const std::int64_t size = facts.shape(table).front() / pieces_.pieces, first = size * piece;
  const int indices = writer.number(argument<GraphValue>(node, 1)->number);
  const Rows rows = rows_of(writer, indices, first, size);
  const auto* padding = argument<std::int64_t>(node, 2);
  const bool has_padding = padding != nullptr && *padding >= first && *padding < first + size;
  const int found = writer.add("aten::embedding", "",
                               {value_json(writer.number(table)), value_json(rows.index),
                                has_padding ? *padding - first : -1, false, false});
  const int values = as_float(writer, found, facts.type(side(s).joined));
  const int is_own = writer.add("aten::unsqueeze", "", {value_json(rows.is_own), -1});
  return writer.add("aten::mul", "Tensor", {value_json(values), value_json(is_own)});
}

int PieceWriter::write_classes(std::size_t s, int piece, int targets, GraphWriter& writer) const {
  const GraphFacts& facts = side_facts(s);
  const std::int64_t size = facts.shape(side(s).joined).back() / pieces_.pieces;
  const std::int64_t first = size * piece;
  const int part = as_float(writer, writer.number(side(s).joined), facts.type(side(s).joined));
  const auto add = [&](const char* op, const char* overload, Json args) {
    return value_json(writer.add(op, overload, std::move(args)));
  };
  const auto list = [](std::initializer_list<std::int64_t> numbers) {
    return Json(std::vector(numbers));
  };
  const Json logits = add("aten::reshape", "", {value_json(part), list({-1, size})});
  const Json classes = add("aten::reshape", "", {value_json(targets), list({-1})});
  const Rows rows = rows_of(writer, classes["value"].get<int>(), first, size);
  const Json index = add("aten::unsqueeze", "", {value_json(rows.index), -1});
  const Json chosen = add("aten::gather", "", {logits, 1, index, false});
  const Json target = add("aten::squeeze", "dim", {chosen, 1});
  // Where all classes of a piece are masked, logsumexp would have no gradient.
  constexpr double kLeast = std::numeric_limits<float>::lowest();
  const Json finite = add("aten::clamp_min", "", {logits, kLeast});
  Json columns{add("aten::logsumexp", "", {finite, list({1}), false}),
               add("aten::where", "ScalarOther", {value_json(rows.is_own), target, 0})};
  if (spec_.has_accuracy && s == kTraining) {
    const Json none =
        add("aten::zeros_like", "", {columns[0], nullptr, nullptr, nullptr, nullptr, nullptr});
    columns.push_back(none);
    columns.push_back(none);
  } else if (spec_.has_accuracy) {
    columns.push_back(add("aten::amax", "", {logits, list({1}), false}));
    const Json largest = add("aten::argmax", "", {logits, 1, false});
    const Json own = add("aten::add", "Scalar", {largest, first, 1});
    columns.push_back(add("aten::to", "dtype", {own, type_json("float32"), false, false, nullptr}));
  }
  return writer.add("aten::stack", "", {columns, 1});
}

/// The value that the pieces make together, as the divided layer computes it.
int PieceWriter::write_joined(std::size_t s, const std::vector<int>& pieces,
                              GraphWriter& writer) const {
  if (!pieces_.makes_terms()) {
    Json parts = Json::array();
    for (const int part : pieces) parts.push_back(value_json(part));
    return writer.add("aten::cat", "", {parts, -1});
  }
  int sum = pieces.front();
  const auto call = linear_call(side_facts(s).node(side(s).node));
  if (call && call->bias >= 0) {
    const Json bias = value_json(writer.number(call->bias));
    sum = writer.add("aten::add", "Tensor", {value_json(sum), bias, 1});
  }
  const at::ScalarType type = side_facts(s).type(side(s).joined);
  if (type != at::kFloat) return converted(writer, sum, name_of(type));
  // Only one layer may read terms, also if this one is divided again.
  return sum == pieces.front() ? writer.add("aten::alias", "", {value_json(sum)}) : sum;
}

}  // namespace spillway
