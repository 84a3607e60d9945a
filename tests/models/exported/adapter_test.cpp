#include "models/exported/adapter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "models/graphs/graph_file.h"
#include "spillway/error.h"
#include "spillway/exported.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_net.h"
#include "tests/support/models/run_layers.h"

namespace spillway::testing {
namespace {

constexpr std::int64_t kRank = 2;
constexpr double kAlpha = 6;

/// The network whose "body" is not tied, as a file.
class Net {
 public:
  explicit Net(const std::function<void(ExportedNet&)>& change = [](ExportedNet&) {}) {
    ExportedNet net = exported_net(/*dropout=*/0.25);
    net.tensors.emplace_back("body2.weight", made_up({kNetWidth, kNetWidth}, 8));
    net.document["parameters"].push_back(
        {{"name", "body2.weight"}, {"trainable", true}, {"decay", true}});
    net.document["layers"][3]["parameters"] = {10};
    change(net);
    path_ = folder_.write("net.spw", net.bytes());
  }

  const std::string& path() const { return path_; }
  ExportedSpec spec() const { return GraphFile(path_).spec(); }
  ExportedSpec adapted(const LoraConfig& lora) const {
    ExportedSpec made = spec();
    add_adapter(made, lora);
    return made;
  }
  /// What is wrong with an adapter.
  ConfigError problem(const LoraConfig& lora) const {
    return thrown<ConfigError>([&] { adapted_factory(path_, lora); });
  }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

LoraConfig lora(std::vector<std::string> targets, double dropout = 0) {
  return {.r = kRank, .alpha = kAlpha, .dropout = dropout, .target_modules = std::move(targets)};
}

std::vector<std::string> new_names(const ExportedSpec& spec) {
  std::vector<std::string> names;
  for (const ExportedParam& param : spec.params) {
    if (param.uniform) names.push_back(param.tensor.name);
  }
  return names;
}

using Names = std::vector<std::string>;

std::string adapter_of(const std::string& module, const char* matrix) {
  return "base_model.model." + module + "." + matrix + ".default.weight";
}

/// The matrices of the adapters of these modules.
Names adapters_of(const Names& modules) {
  Names names;
  for (const std::string& module : modules) {
    names.push_back(adapter_of(module, "lora_A"));
    names.push_back(adapter_of(module, "lora_B"));
  }
  return names;
}

TEST(Adapter, AddsMatricesBehindTheParametersOfTheFile) {
  const Net net;
  const ExportedSpec before = net.spec(), after = net.adapted(lora({"embed", "body"}));
  ASSERT_EQ(after.params.size(), before.params.size() + 4);
  for (std::size_t p = 0; p < before.params.size(); ++p) {
    EXPECT_EQ(after.params[p].tensor, before.params[p].tensor);
    EXPECT_FALSE(after.params[p].trainable);
  }
  EXPECT_EQ(new_names(after), adapters_of({"embed", "body"}));
  const ExportedParam &a = after.params[11], &b = after.params[12];
  EXPECT_EQ(a.tensor.shape, (std::vector<std::int64_t>{kRank, kNetInputs}));
  EXPECT_EQ(b.tensor.shape, (std::vector<std::int64_t>{kNetWidth, kRank}));
  EXPECT_TRUE(a.trainable && b.trainable && a.decay && b.decay);
  EXPECT_EQ(after.layers[0].params, (std::vector<int>{0, 1, 11, 12}));
  EXPECT_EQ(after.layers[1].params, before.layers[1].params);
  EXPECT_EQ(after.layers[2].params, (std::vector<int>{7, 13, 14}));
}

TEST(Adapter, LeavesNothingToDifferentiateBeforeTheFirstAdapter) {
  const ExportedSpec spec = Net().adapted(lora({"body"}));
  EXPECT_FALSE(spec.layers[0].differentiable);
  EXPECT_FALSE(spec.layers[1].differentiable);
  EXPECT_TRUE(spec.layers[2].differentiable);
  EXPECT_TRUE(spec.layers[4].differentiable);
}

TEST(Adapter, MatchesNamesAsPeftDoes) {
  const Net net([](ExportedNet& made) {
    made.tensors[9].first = "deep.head.bias";
    made.tensors[8].first = "deep.head.weight";
    made.document["parameters"][8]["name"] = "deep.head.weight";
    made.document["parameters"][9]["name"] = "deep.head.bias";
  });
  EXPECT_EQ(new_names(net.adapted(lora({"head"}))), adapters_of({"deep.head"}));
  EXPECT_EQ(new_names(net.adapted(lora({"deep.head"}))), adapters_of({"deep.head"}));
  EXPECT_EQ(net.problem(lora({"ead"})).field, "adapter.target_modules") << "no part of a name";
  EXPECT_EQ(new_names(net.adapted(lora({"all-linear"}))), adapters_of({"embed", "body", "body2"}))
      << "not the output layer";
}

/// What the model computes with these values, and the same from LibTorch with the products of the
/// adapters merged into the weights.
struct Losses {
  at::Tensor adapted, merged;
};

Losses losses_of(const Net& net, const LoraConfig& config, double scale) {
  const auto model = adapted_factory(net.path(), config)(kNetBatch);
  const auto plain = exported_factory(net.path())(kNetBatch);
  auto values = initial_values(*model, 3);
  std::vector<at::Tensor> merged(values.begin(), values.begin() + std::ssize(plain->spec.params));
  for (std::size_t p = 0; p < plain->spec.params.size(); ++p) {
    const std::string& name = plain->spec.params[p].name;
    const std::string module = name.substr(0, name.rfind('.'));
    for (std::size_t a = merged.size(); a < values.size(); a += 2) {
      if (model->spec.params[a].name != adapter_of(module, "lora_A") || !name.ends_with("weight"))
        continue;
      values[a + 1] = made_up(values[a + 1].sizes().vec(), 9);
      merged[p] = merged[p] + scale * at::matmul(values[a + 1], values[a]);
    }
  }
  return {run_layers(*model, values, net_rows(), false).last.output,
          run_layers(*plain, merged, net_rows(), false).last.output};
}

TEST(Adapter, ComputesTheSumOfTheLayerAndItsScaledMatrices) {
  const Net net;
  const LoraConfig config = lora({"embed", "body", "body2", "head"});
  const Losses right = losses_of(net, config, kAlpha / kRank);
  EXPECT_TRUE(at::allclose(right.adapted, right.merged, 1e-5, 1e-6));
  const Losses wrong = losses_of(net, config, kAlpha);
  EXPECT_FALSE(at::allclose(wrong.adapted, wrong.merged, 1e-5, 1e-6));
}

TEST(Adapter, BeginsWithTheModelsOwnOutput) {
  const Net net;
  const auto model = adapted_factory(net.path(), lora({"all-linear"}))(kNetBatch);
  const auto plain = exported_factory(net.path())(kNetBatch);
  for (const bool training : {true, false}) {
    EXPECT_TRUE(
        run_layers(*model, initial_values(*model, 1), net_rows(), training)
            .last.output.equal(
                run_layers(*plain, initial_values(*plain, 1), net_rows(), training).last.output))
        << training;
  }
}

TEST(Adapter, DrawsItsFirstMatrixByTheSeed) {
  const Net net;
  const auto model = adapted_factory(net.path(), lora({"embed", "body"}))(kNetBatch);
  const auto values = initial_values(*model, 5), again = initial_values(*model, 5),
             other = initial_values(*model, 6);
  const double limit = 1 / std::sqrt(double{kNetInputs});
  EXPECT_LE(values[11].abs().max().item<double>(), limit);
  EXPECT_GT(values[11].abs().max().item<double>(), limit / 2);
  EXPECT_LT(std::abs(values[11].mean().item<double>()), limit / 2);
  EXPECT_FALSE(values[12].any().item<bool>());
  EXPECT_TRUE(values[11].equal(again[11]));
  EXPECT_FALSE(values[11].equal(other[11]));
  EXPECT_FALSE(values[11].equal(values[13].narrow(1, 0, kNetInputs))) << "of another module";
  EXPECT_TRUE(values[0].equal(other[0])) << "the file's";
}

TEST(Adapter, DropsItsInputInTrainingOnly) {
  const Net net;
  const auto loss = [&](double dropout, bool training) {
    const auto model = adapted_factory(net.path(), lora({"head"}, dropout))(kNetBatch);
    auto values = initial_values(*model, 1);
    values[12] = made_up({kNetClasses, kRank}, 1);
    return run_layers(*model, values, net_rows(), training).last.output;
  };
  EXPECT_FALSE(loss(0.5, true).equal(loss(0, true)));
  EXPECT_TRUE(loss(0.5, true).equal(loss(0.5, true)));
  EXPECT_TRUE(loss(0.5, false).equal(loss(0, false)));
}

TEST(Adapter, ReadsTransposedMatricesOfAddmm) {
  const Net net([](ExportedNet& made) {
    made.tensors[8].second = made_up({kNetWidth, kNetClasses}, 5);  // [in, out]
    made.document["graphs"][4] =
        graph({node("aten::addmm", "", {value(2), value(0), value(1), 1, 1})}, 3);
  });
  const ExportedSpec spec = net.adapted(lora({"head"}));
  EXPECT_EQ(spec.params[11].tensor.shape, (std::vector<std::int64_t>{kRank, kNetWidth}));
  EXPECT_EQ(spec.params[12].tensor.shape, (std::vector<std::int64_t>{kNetClasses, kRank}));
  const auto model = adapted_factory(net.path(), lora({"head"}))(kNetBatch);
  const auto plain = exported_factory(net.path())(kNetBatch);
  auto values = initial_values(*model, 1), merged = initial_values(*plain, 1);
  values[12] = made_up({kNetClasses, kRank}, 1);
  merged[8] = merged[8] + kAlpha / kRank * at::matmul(values[12], values[11]).t();
  EXPECT_TRUE(at::allclose(run_layers(*model, values, net_rows(), false).last.output,
                           run_layers(*plain, merged, net_rows(), false).last.output, 1e-5, 1e-6));
}

TEST(Adapter, SharesGraphsBetweenEqualLayers) {
  const Net net;
  const auto model = adapted_factory(net.path(), lora({"body", "body2"}))(kNetBatch);
  EXPECT_EQ(model->spec.layers[2].kind, model->spec.layers[3].kind);
  const auto other =
      adapted_factory(net.path(), {.r = kRank, .alpha = 7, .target_modules = {"body"}})(kNetBatch);
  EXPECT_NE(other->spec.layers[2].kind, model->spec.layers[2].kind);
}

struct Refusal {
  LoraConfig lora;
  const char* field;
  const char* problem;
};

TEST(Adapter, RefusesWithFieldAndRemedy) {
  const Net net;
  const std::vector<Refusal> refusals{
      {{.r = 0, .target_modules = {"head"}},
       "adapter.r",
       "is 0, must be an integer from 1 to 65536"},
      {{.alpha = 0, .target_modules = {"head"}}, "adapter.alpha", "is 0, must be a number above 0"},
      {{.dropout = 1, .target_modules = {"head"}},
       "adapter.dropout",
       "is 1, must be a number of at least 0 and below 1"},
      {{.dropout = 1 - 1e-12, .target_modules = {"head"}},
       "adapter.dropout",
       "which is 1 in single precision"},
      {lora({}), "adapter.target_modules", "is missing; name linear layers"},
      {lora({"haed"}), "adapter.target_modules",
       "has 'haed', which names no module of 'Net'; name others, such as body, body2, embed, head"},
      {lora({"norm"}), "adapter.target_modules",
       "names 'norm', which is no linear layer; name others"},
      {lora({"head", "all-linear"}), "adapter.target_modules", "has 'all-linear', which names no"},
  };
  for (const Refusal& refusal : refusals) {
    const ConfigError error = net.problem(refusal.lora);
    EXPECT_EQ(error.field, refusal.field);
    EXPECT_NE(error.problem.find(refusal.problem), std::string::npos) << error.problem;
  }
}

TEST(Adapter, RefusesModelsThatItDoesNotFit) {
  const TemporaryFolder folder;
  const std::string tied = folder.write("tied.spw", exported_net().bytes());
  EXPECT_NE(thrown<ConfigError>([&] {
              adapted_factory(tied, lora({"body"}));
            }).problem.find("whose weight is tied: the model uses it 2 times"),
            std::string::npos);
  const Net adapted([](ExportedNet& made) {
    made.tensors[8].first = "head.lora_A.default.weight";
    made.document["parameters"][8]["name"] = "head.lora_A.default.weight";
  });
  const ConfigError error = adapted.problem(lora({"embed"}));
  EXPECT_EQ(error.field, "adapter");
  EXPECT_NE(error.problem.find("has an adapter already, 'head.lora_A.default.weight'"),
            std::string::npos)
      << error.problem;
  const Net drops([](ExportedNet& made) {
    json& embed = made.document["graphs"][0];  // with one dropout of its own
    for (int value = 5; value < 20; ++value)
      embed["nodes"].push_back(node("spillway::dropout", "", {testing::value(value), 0.1}));
    embed["result"] = 20;
  });
  EXPECT_NO_THROW(adapted_factory(drops.path(), lora({"embed"})));
  EXPECT_NE(drops.problem(lora({"embed"}, 0.1))
                .problem.find("layer 'embed' would drop 17 times, but at most 16 are possible"),
            std::string::npos);
}

}  // namespace
}  // namespace spillway::testing
