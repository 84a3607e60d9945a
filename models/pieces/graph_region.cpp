#include "models/pieces/graph_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "models/graphs/graph_node.h"

namespace spillway {
namespace {

class RegionFinder;
using Rule = void (*)(RegionFinder&, int node, const Division& out);

/// Goes through the nodes from the last to the first. For a node whose output is divided, a rule
/// says what this means for the values that it reads.
class RegionFinder {
 public:
  RegionFinder(const GraphFacts& facts, std::int64_t pieces) : facts_(facts), pieces_(pieces) {}

  GraphRegion find(int value, const Division& division) && {
    divide(value, division);
    for (int n = facts_.num_nodes() - 1; n >= 0; --n) visit(n);
    for (const int typed : types_) {
      if (!region_.divided.contains(typed)) read(typed);
    }
    for (const int whole : region_.whole) {
      if (region_.divided.contains(whole))
        throw Indivisible{"a value is read both whole and in parts"};
    }
    return std::move(region_);
  }

  // What rules are made of.
  const GraphFacts& facts() const { return facts_; }
  const GraphNode& node(int n) const { return facts_.node(n); }
  const Shape& shape(int value) const { return facts_.shape(value); }
  const Shape& out_shape(int n) const { return shape(facts_.output(n)); }
  int rank(int value) const { return static_cast<int>(shape(value).size()); }
  int out_rank(int n) const { return rank(facts_.output(n)); }
  std::int64_t size(int value, int dim) const {
    return shape(value)[static_cast<std::size_t>(dim)];
  }

  int value(int n, std::size_t position) const {
    const auto* found = argument<GraphValue>(node(n), position);
    if (found == nullptr) fail(n);
    return found->number;
  }
  std::int64_t number(int n, std::size_t position) const {
    const auto* found = argument<std::int64_t>(node(n), position);
    if (found == nullptr) fail(n);
    return *found;
  }
  /// A list of numbers, or one.
  std::vector<std::int64_t> numbers(int n, std::size_t position) const {
    if (argument<std::int64_t>(node(n), position) != nullptr) return {number(n, position)};
    std::vector<std::int64_t> found;
    const auto* items = std::get_if<std::vector<GraphItem>>(&node(n).args[position]);
    if (items == nullptr) fail(n);
    for (const GraphItem& item : *items) {
      if (const auto* each = std::get_if<std::int64_t>(&item)) found.push_back(*each);
    }
    if (found.size() != items->size()) fail(n);
    return found;
  }
  [[noreturn]] void fail(int n) const {
    throw Indivisible{fmt::format("{} cannot work on parts", node(n).name())};
  }
  void require(int n, bool holds) const {
    if (!holds) fail(n);
  }

  void divide(int value, const Division& division) {
    part_size(shape(value), division, pieces_);
    const auto [known, is_new] = region_.divided.emplace(value, division);
    if (known->second != division) throw Indivisible{"a value is divided in two ways"};
    if (is_new && facts_.is_fixed(value)) region_.sliced.insert(value);
  }
  void read(int value) { region_.whole.insert(value); }
  /// A value of which only the type matters: a part of it does as well.
  void read_type(int value) { types_.insert(value); }
  /// A value whose dimensions are those of the output of rank `out_rank`, from the last on. Where
  /// it is repeated along the divided one, pieces read it whole.
  void align(int value, int out_rank, const Division& out) {
    const int dim = out.dim - (out_rank - rank(value));
    dim < 0 || size(value, dim) == 1 ? read(value) : divide(value, {dim, out.blocks});
  }
  /// A size of the output as an argument: that of a piece.
  void change(int n, std::size_t position, int item) {
    const std::int64_t now =
        item < 0 ? number(n, position) : numbers(n, position)[static_cast<std::size_t>(item)];
    if (now >= 0) region_.changes.push_back({n, position, item, now / pieces_});
  }
  void attend() { region_.attends = true; }

 private:
  void visit(int n) {
    std::optional<Division> out;
    for (int o = 0; o < node(n).num_outputs; ++o) {
      const auto found = region_.divided.find(facts_.output(n) + o);
      if (found == region_.divided.end() || region_.sliced.contains(found->first)) continue;
      if (out && *out != found->second) throw Indivisible{"a value is divided in two ways"};
      out = found->second;
    }
    if (!out) return;
    region_.nodes.insert(n);
    apply_rule(n, *out);
  }

  void apply_rule(int n, const Division& out);

  const GraphFacts& facts_;
  std::int64_t pieces_;
  std::set<int> types_;
  GraphRegion region_;
};

// Rules: what `out`, the division of a node's output, means for what the node reads.

/// The outputs of a matrix, or another dimension of what it multiplies.
void linear(RegionFinder& find, int n, const Division& out) {
  const auto call = linear_call(find.node(n));
  find.require(n, call && find.rank(call->weight) == 2);
  const int input = find.value(n, call->input);
  if (out.dim + 1 == find.out_rank(n)) {
    find.read(input);
    find.divide(call->weight, {call->transposed ? 1 : 0, out.blocks});
  } else {
    find.divide(input, out);
    find.read(call->weight);
  }
  if (call->bias >= 0) find.align(call->bias, find.out_rank(n), out);
}

/// A product of matrices, or of batches of them.
void matmul(RegionFinder& find, int n, const Division& out) {
  const int left = find.value(n, 0), right = find.value(n, 1), rank = find.out_rank(n);
  find.require(n, find.rank(left) >= 2 && find.rank(right) >= 2);
  if (out.dim < rank - 2) {
    find.align(left, rank, out);
    find.align(right, rank, out);
  } else if (out.dim == rank - 1) {
    find.read(left);
    find.divide(right, {find.rank(right) - 1, out.blocks});
  } else {
    find.divide(left, {find.rank(left) - 2, out.blocks});
    find.read(right);
  }
}

void pointwise(RegionFinder& find, int n, const Division& out) {
  for_each_value(find.node(n), [&](int value) { find.align(value, find.out_rank(n), out); });
}

/// A product of batches, added to another value.
void batch(RegionFinder& find, int n, const Division& out) {
  find.require(n, out.dim == 0);
  pointwise(find, n, out);
}

/// The first argument in another type or memory, with or without dropout.
void same(RegionFinder& find, int n, const Division& out) {
  find.divide(find.value(n, 0), out);
  bool is_first = true;
  for_each_value(find.node(n), [&](int value) {
    if (!std::exchange(is_first, false)) find.read(value);
  });
}

/// The first argument in another type, perhaps that of another value.
void convert(RegionFinder& find, int n, const Division& out) {
  find.divide(find.value(n, 0), out);
  if (const auto* other = argument<GraphValue>(find.node(n), 1)) find.read_type(other->number);
}

void flatten(RegionFinder& find, int n, const Division& out) {
  const int input = find.value(n, 0);
  find.divide(input, before_reshape(find.shape(input), find.out_shape(n), out));
}

void reshape(RegionFinder& find, int n, const Division& out) {
  flatten(find, n, out);
  find.change(n, 1, out.dim);
}

void unflatten(RegionFinder& find, int n, const Division& out) {
  flatten(find, n, out);
  const int first = dimension(find.number(n, 1), find.shape(find.value(n, 0)).size());
  const int item = out.dim - first;
  const bool is_of_list = item >= 0 && item < static_cast<int>(find.numbers(n, 2).size());
  if (is_of_list) find.change(n, 2, item);
}

void expand(RegionFinder& find, int n, const Division& out) {
  const int input = find.value(n, 0);
  find.align(input, find.out_rank(n), out);
  find.change(n, 1, out.dim);
}

void transpose(RegionFinder& find, int n, const Division& out) {
  const auto rank = static_cast<std::size_t>(find.out_rank(n));
  const int a = dimension(find.number(n, 1), rank), b = dimension(find.number(n, 2), rank);
  const int dim = out.dim == a ? b : out.dim == b ? a : out.dim;
  find.divide(find.value(n, 0), {dim, out.blocks});
}

void transpose_matrix(RegionFinder& find, int n, const Division& out) {
  find.require(n, find.out_rank(n) == 2);
  find.divide(find.value(n, 0), {1 - out.dim, out.blocks});
}

void permute(RegionFinder& find, int n, const Division& out) {
  const auto dims = find.numbers(n, 1);
  find.divide(find.value(n, 0),
              {dimension(dims[static_cast<std::size_t>(out.dim)], dims.size()), out.blocks});
}

void unsqueeze(RegionFinder& find, int n, const Division& out) {
  const int added = dimension(find.number(n, 1), find.out_shape(n).size());
  find.require(n, out.dim != added);
  find.divide(find.value(n, 0), {out.dim > added ? out.dim - 1 : out.dim, out.blocks});
}

/// Dimensions of the input that the output lacks.
void remove_dims(RegionFinder& find, int n, Division out, std::vector<std::int64_t> dims) {
  const int input = find.value(n, 0);
  for (std::int64_t& dim : dims) dim = dimension(dim, find.shape(input).size());
  std::ranges::sort(dims);
  for (const std::int64_t dim : dims) out.dim += dim <= out.dim ? 1 : 0;
  find.divide(input, out);
}

/// One dimension, if it has one element.
void squeeze(RegionFinder& find, int n, const Division& out) {
  find.require(n, find.node(n).overload == "dim");
  const int input = find.value(n, 0);
  if (find.rank(input) != find.out_rank(n)) return remove_dims(find, n, out, {find.number(n, 1)});
  find.require(n, dimension(find.number(n, 1), find.shape(input).size()) != out.dim);
  find.divide(input, out);
}

/// select, unbind: a dimension less.
void select(RegionFinder& find, int n, const Division& out) {
  remove_dims(find, n, out, {find.number(n, 1)});
}

/// Sums, means and the like over other dimensions. Arguments: dimensions, whether they stay.
void reduce(RegionFinder& find, int n, const Division& out) {
  const int input = find.value(n, 0);
  const auto dims = find.numbers(n, 1);
  find.require(n, !dims.empty());
  if (find.rank(input) != find.out_rank(n)) return remove_dims(find, n, out, dims);
  for (const std::int64_t dim : dims)
    find.require(n, dimension(dim, find.shape(input).size()) != out.dim);
  find.divide(input, out);
}

/// Refuses to work along the divided dimension.
void require_another(const RegionFinder& find, int n, const Division& out) {
  find.require(n, dimension(find.number(n, 1), find.out_shape(n).size()) != out.dim);
}

/// A range of another dimension.
void slice(RegionFinder& find, int n, const Division& out) {
  require_another(find, n, out);
  find.divide(find.value(n, 0), out);
}

void softmax(RegionFinder& find, int n, const Division& out) {
  require_another(find, n, out);
  find.divide(find.value(n, 0), out);
  find.attend();
}

void cat(RegionFinder& find, int n, const Division& out) {
  require_another(find, n, out);
  for_each_value(find.node(n), [&](int value) {
    find.require(n, find.rank(value) == find.out_rank(n));
    find.divide(value, out);
  });
}

/// split, chunk: along the divided dimension the parts must have one size, and are the blocks of
/// what is divided.
void split(RegionFinder& find, int n, const Division& out) {
  const int input = find.value(n, 0);
  const bool has_default = find.node(n).args.size() < 3;
  const int dim = has_default ? 0 : dimension(find.number(n, 2), find.shape(input).size());
  if (dim != out.dim) return find.divide(input, out);
  const int count = find.node(n).num_outputs;
  const std::int64_t part = find.size(find.facts().output(n), dim);
  find.require(n, out.blocks == 1 && part * count == find.size(input, dim));
  find.divide(input, {dim, count});
  if (find.node(n).op == "aten::split") find.change(n, 1, -1);
  if (find.node(n).op == "aten::split_with_sizes") {
    const auto sizes = find.numbers(n, 1);
    find.require(n, std::ranges::count(sizes, sizes.front()) == count);
    for (int i = 0; i < count; ++i) find.change(n, 1, i);
  }
}

/// layer_norm and rms_norm over the last dimensions.
void norm(RegionFinder& find, int n, const Division& out) {
  const auto over = static_cast<int>(find.numbers(n, 1).size());
  find.require(n, out.dim < find.out_rank(n) - over);
  same(find, n, out);
}

/// Columns of a table.
void embedding(RegionFinder& find, int n, const Division& out) {
  find.require(n, out.dim + 1 == find.out_rank(n));
  find.divide(find.value(n, 0), {1, out.blocks});
  find.read(find.value(n, 1));
}

/// Heads of an attention; with fewer heads of keys and values, those that belong to them.
void attention(RegionFinder& find, int n, const Division& out) {
  const int rank = find.out_rank(n);
  find.require(n, out.dim < rank - 2);
  for (const std::size_t operand : {0u, 1u, 2u}) find.align(find.value(n, operand), rank, out);
  if (const auto* mask = argument<GraphValue>(find.node(n), 3)) find.align(mask->number, rank, out);
  find.attend();
}

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> known{
      {"aten::_to_copy", &same},
      {"aten::_unsafe_view", &reshape},
      {"aten::addmm", &linear},
      {"aten::alias", &same},
      {"aten::amax", &reduce},
      {"aten::any", &reduce},
      {"aten::baddbmm", &batch},
      {"aten::bmm", &matmul},
      {"aten::cat", &cat},
      {"aten::chunk", &split},
      {"aten::clone", &same},
      {"aten::contiguous", &same},
      {"aten::embedding", &embedding},
      {"aten::expand", &expand},
      {"aten::flatten", &flatten},
      {"aten::hardswish", &pointwise},
      {"aten::layer_norm", &norm},
      {"aten::leaky_relu", &pointwise},
      {"aten::linear", &linear},
      {"aten::log_sigmoid", &pointwise},
      {"aten::masked_fill", &pointwise},
      {"aten::matmul", &matmul},
      {"aten::mean", &reduce},
      {"aten::permute", &permute},
      {"aten::reshape", &reshape},
      {"aten::rms_norm", &norm},
      {"aten::rsub", &pointwise},
      {"aten::scaled_dot_product_attention", &attention},
      {"aten::select", &select},
      {"aten::slice", &slice},
      {"aten::softmax", &softmax},
      {"aten::split", &split},
      {"aten::split_with_sizes", &split},
      {"aten::squeeze", &squeeze},
      {"aten::sum", &reduce},
      {"aten::t", &transpose_matrix},
      {"aten::to", &convert},
      {"aten::transpose", &transpose},
      {"aten::type_as", &convert},
      {"aten::unbind", &select},
      {"aten::unflatten", &unflatten},
      {"aten::unsqueeze", &unsqueeze},
      {"aten::view", &reshape},
      {"aten::where", &pointwise},
      {kDropout, &same},
  };
  return known;
}

void RegionFinder::apply_rule(int n, const Division& out) {
  if (const auto rule = rules().find(node(n).op); rule != rules().end())
    return rule->second(*this, n, out);
  require(n, facts_.is_pointwise(n));
  pointwise(*this, n, out);
}

}  // namespace

GraphRegion region_before(const GraphFacts& facts, int value, const Division& division,
                          std::int64_t pieces) {
  return RegionFinder(facts, pieces).find(value, division);
}

}  // namespace spillway
