#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spillway/error.h"
#include "spillway/exported.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_net.h"
#include "tests/support/models/run_layers.h"

namespace spillway::testing {
namespace {

/// A file of a network, removed at the end.
class File {
 public:
  explicit File(const ExportedNet& net) : path_(folder_.write("net.spw", net.bytes())) {}
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

/// A model and its initial values, which it reads from its file.
struct Made {
  explicit Made(const ExportedNet& net)
      : file(net),
        model(exported_factory(file.path())(kNetBatch)),
        params(initial_values(*model)) {}
  File file;
  std::unique_ptr<Model> model;
  std::vector<at::Tensor> params;
};

/// The network without dropout, by LibTorch; in training with the batch's own mean and variance.
at::Tensor plain_logits(const std::vector<at::Tensor>& p, bool training) {
  auto x = at::tanh(at::linear(net_rows().narrow(1, 0, kNetInputs), p[0], p[1]));
  const auto mean = p[4].clone(), variance = p[5].clone();
  x = at::relu(at::batch_norm(x, p[2], p[3], mean, variance, training, 0.1, 1e-5, false));
  const auto scale = made_up({kNetWidth}, 7) + 1;
  for (int body = 0; body < 2; ++body) {
    const auto halves = x.split(kNetWidth / 2, 1);
    const auto scaled = halves[0] * scale.split(kNetWidth / 2)[0];
    x = at::linear(x, p[7]) * 0.5 + at::cat({scaled, halves[1]}, -1);
  }
  return at::linear(x, p[8], p[9]);
}

at::Tensor plain_loss(const at::Tensor& logits) {
  return at::cross_entropy_loss(logits, net_rows().select(1, kNetInputs).to(at::kLong), {},
                                at::Reduction::Sum, kIgnoredClass, 0.1);
}

TEST(ExportedModel, ComputesWhatLibTorchComputes) {
  for (const bool training : {true, false}) {
    const Made made(exported_net(/*dropout=*/0));
    const auto plain = initial_values(*made.model);
    const LayersResult result = run_layers(*made.model, made.params, net_rows(), training);
    const at::Tensor logits = plain_logits(plain, training);
    EXPECT_TRUE(result.last.output.equal(plain_loss(logits)));
    EXPECT_EQ(result.last.weight, 3);  // one of the four does not count
    result.last.output.backward();
    plain_loss(logits).backward();
    // Layers share the graph here, so a tied parameter has the sum of its uses.
    for (std::size_t p = 0; p < plain.size(); ++p) {
      if (!plain[p].requires_grad()) continue;
      EXPECT_TRUE(made.params[p].grad().equal(plain[p].grad())) << made.model->spec.params[p].name;
    }
    if (training) continue;
    EXPECT_TRUE(result.last.prediction.equal(logits));
    const auto right = logits.argmax(1).eq(at::arange(kNetBatch)).narrow(0, 0, 3).sum();
    EXPECT_TRUE(result.last.metrics.equal(at::tensor({right.item<double>(), 3.0}, at::kDouble)));
  }
}

TEST(ExportedModel, ObservesTheBatchForRunningStatistics) {
  const Made made(exported_net(0));
  const auto x =
      at::tanh(at::linear(net_rows().narrow(1, 0, kNetInputs), made.params[0], made.params[1]));
  const auto observed = run_layers(*made.model, made.params, net_rows()).observed;
  ASSERT_EQ(observed.size(), 2u);
  EXPECT_TRUE(at::allclose(observed.at("norm.running_mean"), x.mean(0)));
  EXPECT_TRUE(at::allclose(observed.at("norm.running_var"), x.var(0)));
}

TEST(ExportedModel, DropsByTheKeyOfTheContextInTrainingOnly) {
  const Made with(exported_net(0.5)), without(exported_net(0));
  const auto loss = [](const Made& of, bool training) {
    return run_layers(*of.model, of.params, net_rows(), training).last.output;
  };
  EXPECT_TRUE(loss(with, true).equal(loss(with, true)));
  EXPECT_FALSE(loss(with, true).equal(loss(without, true)));
  EXPECT_TRUE(loss(with, false).equal(loss(without, false)));
}

TEST(ExportedModel, DescribesItselfAsASpec) {
  const Made made(exported_net());
  const ModelSpec& spec = made.model->spec;
  EXPECT_EQ(spec.num_uses(7), 2) << "tied";
  EXPECT_FALSE(spec.params[9].trainable);
  EXPECT_TRUE(spec.params[4].is_observed());
  EXPECT_EQ(spec.params[6].statistic.kind, StatisticSpec::Kind::count);
  EXPECT_EQ(spec.indices, (std::vector<IndexRange>{{kNetInputs, kNetInputs + 1, kNetClasses}}));
  EXPECT_EQ(spec.layers[2].kind, spec.layers[3].kind) << "equal blocks cost the same";
  EXPECT_NE(spec.layers[1].kind, spec.layers[2].kind);
  EXPECT_TRUE(spec.layers[0].kind.starts_with("torch/"));
  ExportedNet other = exported_net();
  other.tensors.back().second += 1;  // the control: other constants compute something else
  EXPECT_NE(Made(other).model->spec.layers[2].kind, spec.layers[2].kind);
}

TEST(ExportedModel, IsMadeForOneSizeOfVirtualNode) {
  const File file(exported_net());
  const auto error = thrown<ConfigError>([&] { exported_factory(file.path())(2 * kNetBatch); });
  EXPECT_EQ(error.field, "train.virtual_nodes");
  EXPECT_NE(error.problem.find("use train.batch_size / 4"), std::string::npos) << error.problem;
}

TEST(ExportedModel, SaysWhatAProgramNeedsToKnow) {
  const File file(exported_net());
  const ExportedInfo info = exported_info(file.path());
  EXPECT_EQ(info.name, "Net");
  EXPECT_EQ(info.batch_size, kNetBatch);
  EXPECT_EQ(info.row_elements, kNetInputs + 1);
  EXPECT_EQ(info.inputs.at(1).name, "class");
  EXPECT_EQ(info.inputs.at(1).dtype, "int64");
  EXPECT_EQ(info.num_layers, 6);
  EXPECT_EQ(info.metrics, (std::vector<std::string>{"accuracy", "perplexity"}));
  ExportedNet other = exported_net();
  other.tensors[1].second += 1;
  EXPECT_NE(exported_info(File(other).path()).xxh3, info.xxh3);
}

/// The same network, whose first layer rounds the rows.
ExportedNet bfloat16_net() {
  ExportedNet net = exported_net();
  net.document["dtype"] = "bfloat16";
  for (json& layer : net.document["layers"]) layer["output"]["dtype"] = "bfloat16";
  for (auto& [name, tensor] : net.tensors) {
    if (name == "scale" || name == "body.weight") tensor = tensor.to(at::kBFloat16);
  }
  for (const std::size_t embed : {0u, 1u}) {
    json& graph = net.document["graphs"][embed];
    json nodes = json::array(
        {node("aten::to", "dtype", {value(0), {{"dtype", "bfloat16"}}, false, false, nullptr})});
    for (json call : graph["nodes"]) {
      for (json& argument : call["args"]) {
        if (!argument.is_object()) continue;
        const int number = argument["value"].get<int>();
        argument = value(number == 0 ? 3 : number >= 3 ? number + 1 : number);
      }
      nodes.push_back(call);
    }
    graph["nodes"] = nodes;
    graph["result"] = graph["result"].get<int>() + 1;
  }
  return net;
}

TEST(ExportedModel, ComputesInBfloat16WithMastersInFloat) {
  const ExportedNet net = bfloat16_net();
  const Made made(net);
  const ModelSpec& spec = made.model->spec;
  EXPECT_EQ(spec.params[0].tensor.dtype, DType::bf16) << "an F32 tensor";
  EXPECT_EQ(spec.params[0].master().dtype, DType::f32);
  EXPECT_EQ(spec.params[4].tensor.dtype, DType::f32) << "a statistic";
  EXPECT_EQ(spec.edges[1].tensor.dtype, DType::bf16);
  EXPECT_TRUE(made.params[7].equal(net.tensors[7].second)) << "a BF16 tensor";
  const LayersResult result = run_layers(*made.model, made.params, net_rows());
  EXPECT_EQ(result.last.output.scalar_type(), at::kFloat);
  const Made in_float(exported_net());
  const auto expected = run_layers(*in_float.model, in_float.params, net_rows()).last.output;
  EXPECT_TRUE(at::allclose(result.last.output, expected, 0.05));
  EXPECT_FALSE(result.last.output.equal(expected));
}

/// A network of one matrix with another loss.
ExportedNet with_loss(json loss, json graphs = json::array()) {
  ExportedNet net;
  net.tensors = {{"weight", made_up({3, 5}, 0)}};
  graphs.insert(graphs.begin(),
                graph({node("aten::linear", "", {value(0), value(1), nullptr})}, 2));
  loss["inputs"] = {"linear", "y"};
  net.document = {
      {"version", 1},
      {"name", "Linear"},
      {"batch_size", 2},
      {"dtype", "float32"},
      {"row", {{"dtype", "float32"}, {"elements", 8}}},
      {"inputs",
       {{{"name", "x"}, {"begin", 0}, {"shape", {5}}, {"dtype", "float32"}},
        {{"name", "y"}, {"begin", 5}, {"shape", {3}}, {"dtype", "float32"}}}},
      {"parameters", json::array({json{{"name", "weight"}, {"trainable", true}, {"decay", true}}})},
      {"constants", json::array()},
      {"graphs", graphs},
      {"layers",
       json::array({json{
           {"name", "linear"},
           {"inputs", {"x"}},
           {"parameters", {0}},
           {"constants", json::array()},
           {"train", 0},
           {"eval", 0},
           {"output", {{"shape", {2, 3}}, {"dtype", "float32"}, {"differentiable", true}}}}})},
      {"loss", loss},
      {"metrics", json::array()}};
  return net;
}

TEST(ExportedModel, HasTheLossesOfTheFormat) {
  const auto data = made_up({2, 8}, 0.2).abs();
  const auto y = data.narrow(1, 5, 3);
  const auto values = at::linear(data.narrow(1, 0, 5), made_up({3, 5}, 0));
  const auto result_of = [&](const ExportedNet& net) {
    const File file(net);
    const auto model = exported_factory(file.path())(2);
    return run_layers(*model, {net.tensors[0].second}, data).last;
  };
  const LayerResult mse = result_of(with_loss({{"type", "mse"}}));
  EXPECT_TRUE(mse.output.equal(at::mse_loss(values, y, at::Reduction::Sum)));
  EXPECT_EQ(mse.weight, 6);
  const LayerResult bce = result_of(with_loss({{"type", "bce"}}));
  EXPECT_TRUE(bce.output.equal(
      at::binary_cross_entropy_with_logits(values, y, {}, {}, at::Reduction::Sum)));
  EXPECT_EQ(bce.weight, 6);
  const json mean =
      graph({node("aten::sub", "Tensor", {value(0), value(1), 1}),
             node("aten::abs", "", {value(2)}), node("aten::mean", "", {value(3), nullptr})},
            4);
  const LayerResult own = result_of(
      with_loss({{"type", "graph"}, {"constants", json::array()}, {"train", 1}, {"eval", 1}},
                json::array({mean})));
  EXPECT_TRUE(own.output.equal(at::abs(values - y).mean() * 2));
  EXPECT_EQ(own.weight, 2);
}

}  // namespace
}  // namespace spillway::testing
