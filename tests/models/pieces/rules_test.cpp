#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/config_check.h"
#include "tests/models/pieces/divided.h"
#include "tests/support/check/thrown.h"

/// Operators between two products, each compared with the undivided model.
namespace spillway::testing {
namespace {

constexpr std::int64_t kSamples = 2, kRows = 4, kWidth = 8, kFeatures = 16;

// Values that the graph of the block gets.
enum Given { kX, kIn, kInBias, kOut, kOutBias, kNorm, kNormBias, kFactors, kGivenValues };

using Write = std::function<int(GraphNodes&, int)>;

/// A linear layer, then a block of which `write` writes the graph, compared by its squared distance
/// from targets. `out_features`: inputs of the block's last matrix.
ExportedNet net_of(const std::function<int(GraphNodes&)>& write,
                   std::int64_t out_features = kFeatures) {
  ExportedNet net;
  net.tensors = {{"first.weight", made_up({kWidth, kWidth}, 0)},
                 {"first.bias", made_up({kWidth}, 1)},
                 {"in.weight", made_up({kFeatures, kWidth}, 2)},
                 {"in.bias", made_up({kFeatures}, 3)},
                 {"out.weight", made_up({kWidth, out_features}, 4)},
                 {"out.bias", made_up({kWidth}, 5)},
                 {"norm.weight", made_up({kFeatures / 4}, 6) + 1},
                 {"norm.bias", made_up({kFeatures / 4}, 7)},
                 {"factors", made_up({kFeatures}, 8) + 1}};
  json params = json::array();
  for (std::size_t t = 0; t + 1 < net.tensors.size(); ++t)
    params.push_back(param_json(net.tensors[t].first));
  GraphNodes first(3), block(kGivenValues);
  const json of_first = first.graph(first.linear(0, 1));
  const json of_block = block.graph(write(block));
  const auto layer = [](const char* name, const char* input, const std::vector<int>& of,
                        const std::vector<int>& constants, int graph) {
    return layer_json(name, input, of, constants, graph, graph, {kSamples, kRows, kWidth});
  };
  const auto input = [](const char* name, std::int64_t begin) {
    return json{{"name", name}, {"begin", begin}, {"shape", {kRows, kWidth}}, {"dtype", "float32"}};
  };
  net.document = {
      {"version", 1},
      {"name", "Block"},
      {"batch_size", kSamples},
      {"dtype", "float32"},
      {"row", {{"dtype", "float32"}, {"elements", 2 * kRows * kWidth}}},
      {"inputs", {input("x", 0), input("targets", kRows * kWidth)}},
      {"parameters", params},
      {"constants", {"factors"}},
      {"graphs", {of_first, of_block}},
      {"layers",
       {layer("first", "x", {0, 1}, {}, 0), layer("block", "first", {2, 3, 4, 5, 6, 7}, {0}, 1)}},
      {"loss", {{"type", "mse"}, {"inputs", {"block", "targets"}}}},
      {"metrics", json::array()}};
  return net;
}

/// in, `write`, out, and the sum with x.
ExportedNet net_with(const Write& write, std::int64_t out_features = kFeatures) {
  return net_of(
      [&](GraphNodes& nodes) {
        const int inner = write(nodes, nodes.linear(kX, kIn));
        return nodes.add("aten::add", "Tensor", {value(kX), value(nodes.linear(inner, kOut)), 1});
      },
      out_features);
}

at::Tensor rows() { return made_up({kSamples, 2 * kRows * kWidth}, 0.3); }

int reshape(GraphNodes& nodes, int x, std::initializer_list<std::int64_t> shape) {
  return nodes.add("aten::reshape", "", {value(x), list(shape)});
}
int heads(GraphNodes& nodes, int x) { return reshape(nodes, x, {kSamples, kRows, 4, -1}); }
int flat(GraphNodes& nodes, int x) { return reshape(nodes, x, {kSamples, kRows, kFeatures}); }
int transpose(GraphNodes& nodes, int x, int a, int b) {
  return nodes.add("aten::transpose", "int", {value(x), a, b});
}

struct Rule {
  const char* name;
  Write write;
  std::int64_t out_features = kFeatures;
  bool attends = false;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all{
      {"pointwise",
       [](GraphNodes& n, int h) {
         const int gate = n.add("aten::sigmoid", "", {value(h)});
         return n.add("aten::mul", "Tensor", {value(h), value(gate)});
       }},
      {"constants",
       [](GraphNodes& n, int h) {
         return n.add("aten::mul", "Tensor", {value(kFactors), value(h)});
       }},
      {"constants in blocks",
       [](GraphNodes& n, int h) {
         const int pair = n.add("aten::mul", "Tensor", {value(h), value(kFactors)});
         const int halves = n.add("aten::chunk", "", {value(pair), 2, -1}, 2);
         return n.add("aten::mul", "Tensor", {value(halves), value(halves + 1)});
       },
       kFeatures / 2},
      {"types and copies",
       [](GraphNodes& n, int h) {
         h = n.add("aten::to", "dtype", {value(h), {{"dtype", "float64"}}, false, false, nullptr});
         h = n.add("aten::type_as", "", {value(h), value(kX)});
         h = n.add("aten::contiguous", "", {value(h), {{"memory_format", "contiguous_format"}}});
         return n.add("aten::clone", "", {value(h), nullptr});
       }},
      {"heads",
       [](GraphNodes& n, int h) {
         const int own = transpose(n, heads(n, h), 1, -2);
         const int scores =
             n.add("aten::matmul", "", {value(own), value(transpose(n, own, -1, -2))});
         const int weights = n.add("aten::softmax", "int", {value(scores), -1, nullptr});
         const int mixed = n.add("aten::matmul", "", {value(weights), value(own)});
         return flat(n, transpose(n, mixed, 1, 2));
       },
       kFeatures,
       /*attends=*/true},
      {"attention",
       [](GraphNodes& n, int h) {
         const int own = transpose(n, heads(n, h), 1, 2);
         const int mixed =
             n.add("aten::scaled_dot_product_attention", "",
                   {value(own), value(own), value(own), nullptr, 0.0, true, nullptr, false});
         return flat(n, transpose(n, mixed, 1, 2));
       },
       kFeatures,
       /*attends=*/true},
      {"batches",
       [](GraphNodes& n, int h) {
         const int own = reshape(n, transpose(n, heads(n, h), 1, 2), {-1, kRows, kFeatures / 4});
         const int scores = n.add("aten::bmm", "", {value(own), value(transpose(n, own, 1, 2))});
         const int added =
             n.add("aten::baddbmm", "", {value(own), value(scores), value(own), 1, 1});
         return flat(n, transpose(n, reshape(n, added, {kSamples, 4, kRows, -1}), 1, 2));
       }},
      {"permute and flatten",
       [](GraphNodes& n, int h) {
         const int split = n.add("aten::unflatten", "int", {value(h), -1, list({4, -1})});
         const int there = n.add("aten::permute", "", {value(split), list({2, 0, 1, 3})});
         const int back = n.add("aten::permute", "", {value(there), list({1, 2, 0, 3})});
         return n.add("aten::flatten", "using_ints", {value(back), 2, 3});
       }},
      {"repeated heads",
       [](GraphNodes& n, int h) {
         const int one = n.add("aten::unsqueeze", "", {value(heads(n, h)), 3});
         const int many = n.add("aten::expand", "", {value(one), list({-1, -1, 4, 2, -1}), false});
         return reshape(n, many, {kSamples, kRows, 2 * kFeatures});
       },
       2 * kFeatures},
      {"norms of heads",
       [](GraphNodes& n, int h) {
         return flat(n, n.add("aten::layer_norm", "",
                              {value(heads(n, h)), list({kFeatures / 4}), value(kNorm),
                               value(kNormBias), 1e-5, false}));
       }},
      {"reductions",
       [](GraphNodes& n, int h) {
         const int mean = n.add("aten::mean", "dim", {value(h), list({1}), true, nullptr});
         const int most = n.add("aten::amax", "", {value(h), list({-2}), false});
         const int row = n.add("aten::unsqueeze", "", {value(most), 1});
         const int less = n.add("aten::sub", "Tensor", {value(h), value(mean), 1});
         return n.add("aten::mul", "Tensor", {value(less), value(row)});
       }},
      {"ranges",
       [](GraphNodes& n, int h) {
         const int begin = n.add("aten::slice", "Tensor", {value(h), 1, 0, 1, 1});
         const int end = n.add("aten::slice", "Tensor", {value(h), 1, 1, kRows, 1});
         return n.add("aten::cat", "", {json::array({value(end), value(begin)}), 1});
       }},
      {"dimensions of one",
       [](GraphNodes& n, int h) {
         const int more = n.add("aten::unsqueeze", "", {value(h), 0});
         const int less = n.add("aten::squeeze", "dim", {value(more), 0});
         const int chosen = n.add("aten::select", "int", {value(less), 1, 2});
         const int row = n.add("aten::unsqueeze", "", {value(chosen), 1});
         return n.add("aten::add", "Tensor", {value(less), value(row), 1});
       }},
      {"gates",
       [](GraphNodes& n, int h) {
         const int parts = n.add("aten::split", "Tensor", {value(h), kFeatures / 2, -1}, 2);
         const int gate = n.add("aten::silu", "", {value(parts)});
         return n.add("aten::mul", "Tensor", {value(gate), value(parts + 1)});
       },
       kFeatures / 2},
      {"gates of given sizes",
       [](GraphNodes& n, int h) {
         const int parts = n.add("aten::split_with_sizes", "", {value(h), list({8, 8}), 2}, 2);
         return n.add("aten::mul", "Tensor", {value(parts), value(parts + 1)});
       },
       kFeatures / 2},
      {"choices",
       [](GraphNodes& n, int h) {
         const int high = n.add("aten::gt", "Scalar", {value(kFactors), 1.0});
         return n.add("aten::where", "self", {value(high), value(h), value(kFactors)});
       }},
  };
  return all;
}

TEST(Rules, ComputePartsOfTheWhole) {
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.name);
    const ExportedNet net = net_with(rule.write, rule.out_features);
    for (const std::int64_t pieces : {2, 4}) {
      expect_same_in_pieces(
          rows(), net,
          rule.attends ? TorchPieces{.attention = pieces} : TorchPieces{.mlp = pieces});
    }
  }
}

void expect_refused(const ExportedNet& net, const TorchPieces& pieces, const std::string& reason) {
  const std::string text = thrown<ConfigErrors>([&] { Divided(net, pieces); }).what();
  EXPECT_NE(text.find(reason), std::string::npos) << text;
}

TEST(Rules, RefuseWhatNeedsMoreThanAPart) {
  const auto refused = [](const Write& write, const char* op) {
    expect_refused(net_with(write), {.mlp = 2},
                   std::string("aten::") + op + " cannot work on parts");
  };
  expect_refused(
      net_with([](auto& n, int h) {
        const int mean = n.add("aten::mean", "dim", {value(h), list({-1}), true, nullptr});
        return n.add("aten::sub", "Tensor", {value(h), value(mean), 1});
      }),
      {.mlp = 2}, "pieces would read their own results");
  refused(
      [](auto& n, int h) {
        return n.add("aten::cumsum", "", {value(h), 1, nullptr});
      },
      "cumsum");
  refused([](auto& n, int h) { return n.add("aten::flip", "", {value(h), list({-1})}); }, "flip");
  refused(
      [](auto& n, int h) {
        const int end = n.add("aten::slice", "Tensor", {value(h), 2, 8, 16, 1});
        const int begin = n.add("aten::slice", "Tensor", {value(h), 2, 0, 8, 1});
        return n.add("aten::cat", "", {json::array({value(end), value(begin)}), 2});
      },
      "cat");
  refused(
      [](auto& n, int h) {
        return n.add("aten::layer_norm", "", {value(h), list({16}), nullptr, nullptr, 1e-5, false});
      },
      "layer_norm");
}

TEST(Rules, RefuseWhatWouldTieParameters) {
  // The bias of the last product is also a summand inside.
  expect_refused(net_of([](GraphNodes& n) {
                   const int h = n.linear(kX, kIn);
                   const int scaled = n.add("aten::mul", "Tensor", {value(kOutBias), 2.0});
                   return n.add("aten::linear", "", {value(h), value(kOut), value(scaled)});
                 }),
                 {.mlp = 2}, "a bias is computed");
  expect_refused(net_of([](GraphNodes& n) {
                   const int h = n.linear(kX, kIn);
                   const int branch = n.linear(h, kOut);
                   const int again = n.linear(branch, kIn);
                   return n.linear(again, kOut);
                 }),
                 {.mlp = 2}, "it multiplies by a matrix twice");
}

TEST(Rules, RefusePiecesWithoutAnInput) {
  const ExportedNet net = net_of([](GraphNodes& n) {
    const int fixed = reshape(n, kFactors, {2, kWidth});
    const int inner = n.add("aten::relu", "", {value(n.linear(fixed, kIn))});
    const int table = n.linear(inner, kOut);
    const int row = n.add("aten::select", "int", {value(table), 0, 1});
    return n.add("aten::add", "Tensor", {value(kX), value(row), 1});
  });
  expect_refused(net, {.mlp = 2}, "pieces would have no input");
  EXPECT_NO_THROW(Divided(net, {.linear = 2})) << "another layer";
}

/// A layer that is divided twice: its first pieces make the value that the second ones read.
TEST(Rules, DivideALayerTwice) {
  const auto write = [](GraphNodes& n) {
    const int inner = n.add("aten::gelu", "", {value(n.linear(kX, kIn)), "none"});
    const int out = n.add("aten::linear", "", {value(inner), value(kOut), nullptr});  // terms alone
    return n.add("aten::mul", "Tensor", {value(out), value(out)});
  };
  expect_same_in_pieces(rows(), net_of(write), {.mlp = 4});
  expect_same_in_pieces(rows(), net_of(write), {.linear = 2});
}

}  // namespace
}  // namespace spillway::testing
