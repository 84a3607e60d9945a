#include "tests/support/models/exported_transformer.h"

#include <ATen/ATen.h>

#include "spillway/tensor_source.h"

namespace spillway::testing {
namespace {

constexpr std::int64_t kSamples = 2, kHeadSize = kChannels / kHeads;

int norm(GraphNodes& nodes, int x, int weight) {
  return nodes.add("aten::layer_norm", "",
                   {value(x), list({kChannels}), value(weight), value(weight + 1), 1e-5, false});
}
int residual(GraphNodes& nodes, int x, int branch, double dropout) {
  if (dropout > 0) branch = nodes.add("spillway::dropout", "", {value(branch), dropout});
  return nodes.add("aten::add", "Tensor", {value(x), value(branch), 1});
}

/// Given: x, norm weight and bias, qkv weight and bias, projection weight and bias, factors.
json attention(const TransformerOptions& options, bool training) {
  GraphNodes nodes(8);
  int read = 0;
  if (training && options.input_dropout > 0)
    read = nodes.add("spillway::dropout", "", {value(read), options.input_dropout});
  const int qkv = nodes.linear(norm(nodes, read, 1), 3);
  const int part = nodes.add("aten::split", "Tensor", {value(qkv), kChannels, 2}, 3);
  const auto heads = [&](int x) {
    const int split =
        nodes.add("aten::view", "", {value(x), list({kSamples, kPositions, -1, kHeadSize})});
    return nodes.add("aten::transpose", "int", {value(split), 1, 2});
  };
  const int query = heads(part), key = heads(part + 1), values = heads(part + 2);
  const int keys = nodes.add("aten::transpose", "int", {value(key), -2, -1});
  const int product = nodes.add("aten::matmul", "", {value(query), value(keys)});
  const int scores = nodes.add("aten::mul", "Tensor", {value(product), value(7)});
  int weights = nodes.add("aten::softmax", "int", {value(scores), -1, nullptr});
  if (training && options.attention_dropout > 0)
    weights = nodes.add("spillway::dropout", "", {value(weights), options.attention_dropout});
  const int mixed = nodes.add("aten::matmul", "", {value(weights), value(values)});
  const int back = nodes.add("aten::transpose", "int", {value(mixed), 1, 2});
  const int joined =
      nodes.add("aten::reshape", "", {value(back), list({kSamples, kPositions, kChannels})});
  const int branch = nodes.linear(joined, 5);
  return nodes.graph(residual(nodes, 0, branch, training ? options.residual_dropout : 0));
}

/// Given: x, norm weight and bias, expansion [in, out] and bias, projection and bias.
json mlp(const TransformerOptions& options, bool training) {
  GraphNodes nodes(7);
  const int flat =
      nodes.add("aten::reshape", "", {value(norm(nodes, 0, 1)), list({-1, kChannels})});
  int inner = nodes.add("aten::addmm", "", {value(4), value(flat), value(3), 1, 1});
  if (options.writes) inner = nodes.add("aten::relu_", "", {value(inner)});
  inner = nodes.add("aten::gelu", "", {value(inner), "tanh"});
  const int shaped =
      nodes.add("aten::view", "", {value(inner), list({kSamples, kPositions, kInner})});
  const int branch = nodes.linear(shaped, 5);
  return nodes.graph(residual(nodes, 0, branch, training ? options.residual_dropout : 0));
}

}  // namespace

ExportedNet exported_transformer(const TransformerOptions& options) {
  ExportedNet net;
  net.tensors = {{"wte.weight", made_up({kTokens, kChannels}, 0)},
                 {"ln_1.weight", made_up({kChannels}, 1) + 1},
                 {"ln_1.bias", made_up({kChannels}, 2)},
                 {"attn.qkv.weight", made_up({3 * kChannels, kChannels}, 3)},
                 {"attn.qkv.bias", made_up({3 * kChannels}, 4)},
                 {"attn.proj.weight", made_up({kChannels, kChannels}, 5)},
                 {"attn.proj.bias", made_up({kChannels}, 6)},
                 {"ln_2.weight", made_up({kChannels}, 7) + 1},
                 {"ln_2.bias", made_up({kChannels}, 8)},
                 {"mlp.fc.weight", made_up({kChannels, kInner}, 9)},
                 {"mlp.fc.bias", made_up({kInner}, 10)},
                 {"mlp.proj.weight", made_up({kChannels, kInner}, 11)},
                 {"mlp.proj.bias", made_up({kChannels}, 12)},
                 {"ln_f.weight", made_up({kChannels}, 13) + 1},
                 {"ln_f.bias", made_up({kChannels}, 14)},
                 {"factors", made_up({1, kHeads, 1, 1}, 15) + 1}};
  json params = json::array();
  for (std::size_t t = 0; t + 1 < net.tensors.size(); ++t) {
    params.push_back(param_json(net.tensors[t].first));
  }
  GraphNodes embed(2), head(4);
  embed.add("aten::embedding", "", {value(1), value(0), 5, false, false});
  const int logits = head.add("aten::linear", "", {value(norm(head, 0, 1)), value(3), nullptr});
  const auto layer = [](const char* name, const char* input, const std::vector<int>& of,
                        const std::vector<int>& constants, int graphs, std::int64_t width) {
    return layer_json(name, input, of, constants, graphs, graphs + 1,
                      {kSamples, kPositions, width});
  };
  const json embedded = embed.graph(2), of_head = head.graph(logits);
  // In place of an MLP's norm: the mean row of the embedding is added to x.
  json second = mlp(options, true), second_eval = mlp(options, false);
  std::vector<int> of_mlp{7, 8, 9, 10, 11, 12};
  if (options.ties) {
    of_mlp.push_back(0);
    for (json* graph : {&second, &second_eval}) {
      GraphNodes with(8);
      const int mean = with.add("aten::mean", "dim", {value(7), list({0}), false, nullptr});
      *graph = with.graph(with.add("aten::add", "Tensor", {value(0), value(mean), 1}));
    }
  }
  const auto input = [](const char* name, std::int64_t begin) {
    return json{{"name", name},
                {"begin", begin},
                {"shape", {kPositions}},
                {"dtype", "int64"},
                {"limit", kTokens}};
  };
  net.document = {{"version", 1},
                  {"name", "Transformer"},
                  {"batch_size", kSamples},
                  {"dtype", "float32"},
                  {"row", {{"dtype", "int64"}, {"elements", kPositions + 1}}},
                  {"inputs", {input("tokens", 0), input("targets", 1)}},
                  {"parameters", params},
                  {"constants", {"factors"}},
                  {"graphs",
                   {embedded, embedded, attention(options, true), attention(options, false), second,
                    second_eval, of_head, of_head}},
                  {"layers",
                   {layer("embed", "tokens", {0}, {}, 0, kChannels),
                    layer("attn", "embed", {1, 2, 3, 4, 5, 6}, {0}, 2, kChannels),
                    layer("mlp", "attn", of_mlp, {}, 4, kChannels),
                    layer("head", "mlp", {13, 14, 0}, {}, 6, kTokens)}},
                  {"loss",
                   {{"type", "cross_entropy"},
                    {"inputs", {"head", "targets"}},
                    {"ignore_index", 7},
                    {"label_smoothing", 0.0}}},
                  {"metrics", {"accuracy", "perplexity"}}};
  return net;
}

at::Tensor transformer_rows() {
  return at::arange(kSamples * (kPositions + 1)).mul(5).remainder(kTokens).view({kSamples, -1});
}

std::shared_ptr<const DataSplit> transformer_data() {
  const at::Tensor numbers = at::arange(120 * (kPositions + 1));
  const at::Tensor rows = numbers.mul(numbers).add(numbers).remainder(kTokens).view({120, -1});
  return std::make_shared<const DataSplit>(split(tensor_rows({rows}), 0.2));
}

}  // namespace spillway::testing
