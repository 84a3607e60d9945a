#include "models/pieces/layer_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "models/base/compute_type.h"
#include "models/graphs/graph_node.h"
#include "models/graphs/tensor_types.h"
#include "spillway/error.h"

namespace spillway {
namespace {

using Side = LayerPieces::Side;

std::vector<GraphFacts::Given> given_to(const ExportedSpec& spec, const ExportedLayer& layer) {
  std::vector<GraphFacts::Given> values;
  for (const ExportedSource source : layer.inputs) {
    if (source.layer >= 0) {
      const ExportedLayer& from = spec.layers[static_cast<std::size_t>(source.layer)];
      values.push_back({from.shape, scalar_type(from.dtype), /*is_fixed=*/false});
    } else {
      const ExportedInput& part = spec.inputs[static_cast<std::size_t>(source.input)];
      std::vector<std::int64_t> shape{spec.batch_size};
      shape.insert(shape.end(), part.shape.begin(), part.shape.end());
      values.push_back({std::move(shape), scalar_type(part.type), /*is_fixed=*/true});
    }
  }
  for (const int p : layer.params) {
    const ExportedParam& param = spec.params[static_cast<std::size_t>(p)];
    values.push_back({param.shape(), scalar_type(type_of(spec, param)), /*is_fixed=*/false});
  }
  for (const int c : layer.constants) {
    const TensorEntry& constant = spec.constants[static_cast<std::size_t>(c)];
    values.push_back({constant.shape, scalar_type(constant), /*is_fixed=*/true});
  }
  return values;
}

/// The last dimension, all of it one block.
Division last_dim(const GraphFacts& facts, int value) {
  return {static_cast<int>(facts.shape(value).size()) - 1};
}

[[noreturn]] void refuse_structure(const char* reason) {
  throw Indivisible{reason, Indivisible::Cause::structure};
}

/// The only node that multiplies by a matrix.
int product_with(const GraphFacts& facts, int weight) {
  int found = -1;
  for (int n = 0; n < facts.num_nodes(); ++n) {
    const auto call = linear_call(facts.node(n));
    if (!call || call->weight != weight) continue;
    if (found >= 0) throw Indivisible{"it multiplies by a matrix twice"};
    found = n;
  }
  if (found < 0) throw Indivisible{"it multiplies by a matrix in training or evaluation only"};
  return found;
}

bool overlap(const std::set<int>& one, const std::set<int>& other) {
  return std::ranges::any_of(one, [&](int node) { return other.contains(node); });
}

/// Completes what is known of a side: what comes before the pieces and after them.
class Surroundings {
 public:
  Surroundings(const ExportedSpec& spec, const LayerFacts& layer, const GraphFacts& facts,
               Side& side)
      : spec_(spec), layer_(layer), facts_(facts), side_(side) {}

  /// What is read of the values that the graph gets.
  struct Reads {
    std::set<int> pieces, before, after;
  };

  Reads find() && {
    check_given();
    for (const int value : side_.region.whole) add_read(value);
    for (const int value : side_.region.sliced) add_shared(value);
    if (side_.computed >= 0) {
      facts_.add_makers(side_.computed, /*only_fixed=*/false, {}, side_.before);
      const at::ScalarType type = facts_.type(side_.computed);
      require(type == at::kFloat || type == at::kBFloat16,
              "the value that pieces read is neither float32 nor bfloat16");
    }
    facts_.add_makers(facts_.graph().result, /*only_fixed=*/false, {side_.joined, side_.computed},
                      side_.after);
    check_after();
    Reads reads{reads_of_pieces(), reads_of(side_.before), reads_of(side_.after)};
    reads.after.insert(bias());
    require(side_.computed >= 0 || has_input(reads.pieces), "pieces would have no input");
    require(side_.computed < 0 || has_input(reads.before), "what pieces read needs no input");
    return reads;
  }

 private:
  static void require(bool holds, const char* reason) {
    if (!holds) throw Indivisible{reason};
  }

  bool is_param(int value) const { return layer_.layer->param_of(value) >= 0; }
  bool is_statistic(int value) const {
    const int param = layer_.layer->param_of(value);
    return param >= 0 && spec_.params[static_cast<std::size_t>(param)].is_statistic();
  }

  std::set<int> inside() const {
    std::set<int> nodes = side_.region.nodes;
    if (side_.node >= 0) nodes.insert(side_.node);
    return nodes;
  }
  std::set<int> reads_of(const std::set<int>& nodes) const {
    std::set<int> values;
    for (const int n : nodes)
      for_each_value(facts_.node(n), [&](int value) { values.insert(value); });
    return values;
  }
  /// What comes after them adds the bias of their product.
  std::set<int> reads_of_pieces() const {
    std::set<int> nodes = side_.region.nodes;
    nodes.insert(side_.shared.begin(), side_.shared.end());
    std::set<int> values = reads_of(nodes);
    if (side_.node < 0) return values;
    std::set<int> last = reads_of({side_.node});
    last.erase(bias());
    values.merge(last);
    return values;
  }
  /// Of the product whose terms the pieces make; -1: none.
  int bias() const {
    const auto call = side_.node < 0 ? std::nullopt : linear_call(facts_.node(side_.node));
    return call ? call->bias : -1;
  }
  bool has_input(const std::set<int>& values) const {
    return std::ranges::any_of(values, [&](int value) { return layer_.is_input(value); });
  }

  void check_given() const {
    for (const auto& [value, division] : side_.region.divided) {
      if (!facts_.is_given(value) || side_.region.sliced.contains(value)) continue;
      if (!is_param(value) || is_statistic(value))
        refuse_structure("no matrix is in front of what pieces would compute");
    }
    const bool is_ready =
        bias() < 0 || (facts_.is_given(bias()) && !side_.region.divided.contains(bias()));
    require(is_ready, "a bias is computed, or shared by two products");
  }

  void add_shared(int value) { facts_.add_makers(value, /*only_fixed=*/true, {}, side_.shared); }

  void add_read(int value) {
    if (facts_.is_fixed(value)) return add_shared(value);
    if (facts_.is_given(value)) return require(!is_statistic(value), "pieces read a statistic");
    require(side_.computed < 0 || side_.computed == value, "pieces would need two computed inputs");
    side_.computed = value;
  }

  void check_after() const {
    const std::set<int> nodes = inside();
    require(!overlap(side_.after, nodes), "something else reads a value that pieces share");
    require(!overlap(side_.before, nodes), "pieces would read their own results");
    for (const int n : side_.after) {
      const bool is_twice = side_.before.contains(n) && !facts_.is_fixed(facts_.output(n));
      require(!is_twice, "what follows the pieces needs a second value from before them");
    }
  }

  const ExportedSpec& spec_;
  const LayerFacts& layer_;
  const GraphFacts& facts_;
  Side& side_;
};

/// A parameter in several layers would be tied.
void check_params(const LayerFacts& layer, const std::array<Surroundings::Reads, 2>& reads) {
  for (int value = layer.num_inputs(); value < layer.num_inputs() + layer.num_params(); ++value) {
    const auto is_in = [&](std::set<int> Surroundings::Reads::*role) {
      return (reads[0].*role).contains(value) || (reads[1].*role).contains(value);
    };
    using Reads = Surroundings::Reads;
    if (is_in(&Reads::pieces) + is_in(&Reads::before) + is_in(&Reads::after) > 1)
      throw Indivisible{"pieces and something else read the same parameter"};
  }
}

using FindSide = std::function<Side(const GraphFacts&, std::int64_t pieces)>;

/// Finds both sides and checks that they agree.
LayerPieces just_so_many(const ExportedSpec& spec, const LayerFacts& layer, PiecesKind kind,
                         std::int64_t number, const FindSide& find_side) {
  if (!layer.layer->differentiable) refuse_structure("nothing is trained in it or before it");
  LayerPieces pieces{.kind = kind, .pieces = static_cast<int>(number)};
  std::array<Surroundings::Reads, 2> reads;
  for (std::size_t s = 0; s < 2; ++s) {
    const GraphFacts& facts = *layer.sides[s];
    if (!facts.writer().empty())
      throw Indivisible{fmt::format("{} changes a value in place", facts.writer())};
    Side& side = pieces.sides[s];
    side = find_side(facts, number);
    reads[s] = Surroundings(spec, layer, facts, side).find();
    std::map<int, Division> params;
    for (const auto& [value, division] : side.region.divided) {
      if (const int param = layer.layer->param_of(value); param >= 0)
        params.emplace(param, division);
    }
    if (s > 0 && params != pieces.params)
      throw Indivisible{"training and evaluation differ in what pieces share"};
    pieces.params = std::move(params);
  }
  const auto is_like = [&](int Side::*value) {
    const int one = pieces.sides[0].*value, other = pieces.sides[1].*value;
    return one < 0 || other < 0 ? one < 0 && other < 0
                                : layer.sides[0]->shape(one) == layer.sides[1]->shape(other) &&
                                      layer.sides[0]->type(one) == layer.sides[1]->type(other);
  };
  if (!is_like(&Side::joined) || !is_like(&Side::computed))
    throw Indivisible{"training and evaluation differ in the shape or type of what pieces read"};
  check_params(layer, reads);
  return pieces;
}

LayerPieces pieces_with(const ExportedSpec& spec, const LayerFacts& layer, PiecesKind kind,
                        std::int64_t most, const FindSide& find_side) {
  std::optional<Indivisible> reason;
  for (std::int64_t number = most; number > 1; --number) {
    try {
      return just_so_many(spec, layer, kind, number, find_side);
    } catch (const Indivisible& problem) {
      const bool is_by_size = problem.cause == Indivisible::Cause::size;
      if (!reason || !is_by_size) reason = problem;
      if (!is_by_size) break;
    }
  }
  throw Indivisible(*reason);
}

Side side_before(const GraphFacts& facts, int weight, std::int64_t pieces) {
  Side side{.node = product_with(facts, weight)};
  const auto call = linear_call(facts.node(side.node));
  const int input = argument<GraphValue>(facts.node(side.node), call->input)->number;
  side.joined = facts.output(side.node);
  side.region = region_before(facts, input, last_dim(facts, input), pieces);
  const bool has_matrix = std::ranges::any_of(side.region.divided, [&](const auto& each) {
    return facts.is_given(each.first) && !facts.is_fixed(each.first);
  });
  if (!has_matrix) refuse_structure("no matrix is in front of what pieces would compute");
  const Division columns{call->transposed ? 0 : 1};
  part_size(facts.shape(weight), columns, pieces);
  if (side.region.whole.contains(weight) || !side.region.divided.emplace(weight, columns).second)
    throw Indivisible{"it multiplies by a matrix in two ways"};
  return side;
}

/// Whether an operator changes no element.
bool moves(const std::string& op) {
  static const std::set<std::string, std::less<>> known{
      "aten::alias",   "aten::clone",   "aten::contiguous", "aten::detach",    "aten::expand",
      "aten::flatten", "aten::permute", "aten::reshape",    "aten::select",    "aten::slice",
      "aten::squeeze", "aten::to",      "aten::transpose",  "aten::unsqueeze", "aten::view"};
  return known.contains(op);
}

/// Whether indices of the batch choose rows of a table that has as many as there are indices.
bool is_vocabulary(const ExportedSpec& spec, const LayerFacts& layer, const GraphFacts& facts,
                   int indices, std::int64_t rows) {
  std::set<int> nodes;
  facts.add_makers(indices, /*only_fixed=*/true, {}, nodes);
  std::set<int> reads{indices};
  for (const int n : nodes) for_each_value(facts.node(n), [&](int value) { reads.insert(value); });
  const bool are_moved = std::ranges::all_of(nodes, [&](int n) { return moves(facts.node(n).op); });
  return facts.is_fixed(indices) && are_moved && std::ranges::any_of(reads, [&](int value) {
           if (!facts.is_given(value) || !layer.is_input(value)) return false;
           const ExportedSource source = layer.layer->inputs[static_cast<std::size_t>(value)];
           return source.input >= 0 &&
                  spec.inputs[static_cast<std::size_t>(source.input)].limit == rows;
         });
}

bool is_false(const GraphNode& node, std::size_t position) {
  const auto* flag = argument<bool>(node, position);
  return flag != nullptr && !*flag;
}

}  // namespace

std::vector<int> LayerFacts::matrices() const {
  std::vector<int> found;
  for (const GraphNode& node : sides[0]->graph().nodes) {
    const auto call = linear_call(node);
    if (call && layer->param_of(call->weight) >= 0) found.push_back(call->weight);
  }
  return found;
}

std::set<int> LayerFacts::unread() const {
  std::set<int> values;
  for (int p = 0; p < num_params(); ++p) values.insert(num_inputs() + p);
  for (const auto& side : sides) {
    for (const GraphNode& node : side->graph().nodes)
      for_each_value(node, [&](int value) { values.erase(value); });
  }
  return values;
}

bool LayerFacts::attends() const {
  return std::ranges::any_of(sides[0]->graph().nodes, [](const GraphNode& node) {
    return node.op == "aten::softmax" || node.op == "aten::scaled_dot_product_attention";
  });
}

LayerFacts facts_of(const ExportedSpec& spec, const ExportedLayer& layer) {
  LayerFacts facts{.layer = &layer, .sides = {}};
  try {
    for (std::size_t s = 0; s < 2; ++s) {
      const int graph = s == 0 ? layer.train : layer.eval;
      facts.sides[s] = std::make_unique<GraphFacts>(spec.graphs[static_cast<std::size_t>(graph)],
                                                    given_to(spec, layer));
    }
  } catch (const Error& error) {
    throw Indivisible{error.what()};
  }
  return facts;
}

std::optional<LayerPieces> pieces_before(const ExportedSpec& spec, const LayerFacts& facts,
                                         int weight, const TorchPieces& wanted) {
  const bool attends = side_before(*facts.sides[0], weight, 1).region.attends;
  const std::int64_t pieces = attends ? wanted.attention : wanted.mlp;
  if (pieces == 1) return std::nullopt;
  return pieces_with(spec, facts, attends ? PiecesKind::attention : PiecesKind::mlp, pieces,
                     [&](const GraphFacts& side, std::int64_t number) {
                       return side_before(side, weight, number);
                     });
}

LayerPieces pieces_of_product(const ExportedSpec& spec, const LayerFacts& facts, int weight,
                              std::int64_t pieces) {
  return pieces_with(
      spec, facts, PiecesKind::linear, pieces, [&](const GraphFacts& side, std::int64_t number) {
        const int joined = side.output(product_with(side, weight));
        return Side{.region = region_before(side, joined, last_dim(side, joined), number),
                    .joined = joined};
      });
}

LayerPieces pieces_of_embedding(const ExportedSpec& spec, const LayerFacts& layer,
                                std::int64_t pieces) {
  return pieces_with(spec, layer, PiecesKind::embedding, pieces,
                     [&](const GraphFacts& facts, std::int64_t number) {
                       for (int n = 0; n < facts.num_nodes(); ++n) {
                         const GraphNode& node = facts.node(n);
                         const auto* table = argument<GraphValue>(node, 0);
                         const auto* indices = argument<GraphValue>(node, 1);
                         if (node.op != "aten::embedding" || table == nullptr || indices == nullptr)
                           continue;
                         const bool is_param = layer.layer->param_of(table->number) >= 0;
                         if (!is_param || !is_false(node, 3) || !is_false(node, 4)) continue;
                         const std::int64_t rows = facts.shape(table->number).front();
                         if (!is_vocabulary(spec, layer, facts, indices->number, rows)) continue;
                         part_size(facts.shape(table->number), {0}, number);
                         Side side{.node = n, .joined = facts.output(n)};
                         side.region.divided.emplace(table->number, Division{0});
                         side.region.whole.insert(indices->number);
                         return side;
                       }
                       refuse_structure("it looks up no indices of the batch");
                     });
}

LayerPieces pieces_of_head(const ExportedSpec& spec, const LayerFacts& facts, std::int64_t pieces) {
  LayerPieces head = pieces_with(
      spec, facts, PiecesKind::head, pieces, [&](const GraphFacts& side, std::int64_t number) {
        const int joined = side.graph().result;
        return Side{.region = region_before(side, joined, last_dim(side, joined), number),
                    .joined = joined};
      });
  if (head.sides[0].computed < 0 && !facts.unread().empty())
    throw Indivisible{"it has a parameter that nothing reads, and no layer is left for it"};
  return head;
}

}  // namespace spillway
