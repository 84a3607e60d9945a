#include "models/families/mlp.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "models/base/dropout.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/run_layers.h"

namespace spillway {
namespace {

using testing::context_of;
using testing::run_layers;
using testing::thrown;
using Names = std::vector<std::string>;
using Tensors = std::vector<at::Tensor>;

MlpConfig mlp_config(Activation act = Activation::relu, double dropout = 0) {
  MlpConfig config;
  config.input_size = 6;
  config.num_labels = 4;
  config.hidden_size = 8;
  config.num_hidden_layers = 3;
  config.hidden_act = act;
  config.dropout = dropout;
  return config;
}

TEST(Mlp, NamesParametersFrontToBackAndInitializesAsHe) {
  const ModelSpec spec = make_mlp(mlp_config(), 5)->spec;
  Names names, layers;
  for (const ParamSpec& param : spec.params) {
    names.push_back(param.name);
    const bool is_weight = param.name.ends_with("weight");
    EXPECT_EQ(param.decay, is_weight) << param.name;
    EXPECT_EQ(param.init.kind, is_weight ? InitSpec::Kind::normal : InitSpec::Kind::zeros);
    if (!is_weight) continue;
    const auto inputs = static_cast<double>(param.tensor.shape()[1]);
    EXPECT_DOUBLE_EQ(param.init.stddev, std::sqrt(2 / inputs)) << param.name;
  }
  for (const LayerSpec& layer : spec.layers) layers.push_back(layer.name);
  EXPECT_EQ(names, (Names{"h.0.weight", "h.0.bias", "h.1.weight", "h.1.bias", "h.2.weight",
                          "h.2.bias", "head.weight", "head.bias"}));
  EXPECT_EQ(layers, (Names{"h.0", "h.1", "h.2", "head"}));
  EXPECT_EQ(spec.num_parameters(), 6 * 8 + 8 + 2 * (8 * 8 + 8) + 8 * 4 + 4);
  EXPECT_EQ(spec.consumers(0), (std::vector<int>{0, 3})) << "pixels and labels";
  EXPECT_EQ(spec.edges[0].tensor.shape(), (std::vector<std::int64_t>{5, 7}));
  EXPECT_EQ(spec.indices, (std::vector<IndexRange>{{6, 7, 4}}));
}

TEST(Mlp, GivesLayersOfOneKindTheSameCost) {
  const auto kinds = [](const MlpConfig& config) {
    Names all;
    const ModelSpec spec = make_mlp(config, 5)->spec;
    for (const LayerSpec& layer : spec.layers) all.push_back(layer.kind);
    return all;
  };
  const Names base = kinds(mlp_config());
  EXPECT_EQ(base[1], base[2]);
  EXPECT_EQ(std::set<std::string>(base.begin(), base.end()).size(), 3u);
  EXPECT_NE(kinds(mlp_config(Activation::gelu))[1], base[1]);
  EXPECT_NE(kinds(mlp_config(Activation::relu, 0.5))[1], base[1]);
}

TEST(Mlp, FreezesParametersThatMatchAPattern) {
  MlpConfig config = mlp_config();
  config.freeze = {"h.1.*"};
  const ModelSpec spec = make_mlp(config, 5)->spec;
  for (const ParamSpec& param : spec.params)
    EXPECT_EQ(param.trainable, !param.name.starts_with("h.1.")) << param.name;
}

at::Tensor rows_of(const MlpConfig& config) {
  const at::Tensor pixels = at::arange(5 * config.input_size).remainder(17);
  const at::Tensor labels = at::arange(5).remainder(config.num_labels);
  return at::cat({pixels.view({5, -1}), labels.view({5, 1})}, 1);
}

Tensors parameters_of(const ModelSpec& spec) {
  Tensors params;
  double shift = 0;
  for (const ParamSpec& param : spec.params) {
    const at::Tensor numbers = at::arange(param.tensor.elements(), at::kFloat);
    params.push_back(at::sin(numbers * 0.7 + shift++).view(param.tensor.shape()));
  }
  return params;
}

/// An independent implementation of the model of models/families/mlp.h.
at::Tensor plain_loss(const MlpConfig& config, const Tensors& w, const at::Tensor& rows) {
  at::Tensor x = rows.narrow(1, 0, config.input_size).to(at::kFloat) / 16;
  for (std::size_t l = 0; l < 3; ++l) {
    x = at::matmul(x, w[2 * l].t()) + w[2 * l + 1];
    x = config.hidden_act == Activation::relu   ? at::clamp_min(x, 0)
        : config.hidden_act == Activation::tanh ? at::tanh(x)
                                                : x * 0.5 * (1 + at::erf(x / std::sqrt(2.0)));
    x = dropout(x, config.dropout, context_of(static_cast<std::uint32_t>(l)));
  }
  const at::Tensor logits = at::matmul(x, w[6].t()) + w[7];
  const at::Tensor labels = rows.narrow(1, config.input_size, 1);
  return (at::logsumexp(logits, 1) - logits.gather(1, labels).squeeze(1)).sum();
}

TEST(Mlp, EqualsTheChainOfItsLayers) {
  double last = 0;
  for (const Activation act : {Activation::relu, Activation::gelu, Activation::tanh}) {
    for (const double dropout : {0.0, 0.4}) {
      const MlpConfig config = mlp_config(act, dropout);
      const Tensors params = parameters_of(make_mlp(config, 5)->spec);
      const at::Tensor rows = rows_of(config);
      const LayerResult result = run_layers(*make_mlp(config, 5), params, rows).last;
      const double plain = plain_loss(config, params, rows).item<double>();
      EXPECT_EQ(result.weight, 5);
      EXPECT_NEAR(result.output.item<double>(), plain, 1e-5 * std::abs(plain))
          << to_string(act) << dropout;
      EXPECT_GT(std::abs(plain - last), 1e-3) << "activation and dropout show";
      last = plain;
    }
  }
}

TEST(MlpConfig, NamesEveryInvalidField) {
  using Change = std::function<void(MlpConfig&)>;
  const std::vector<std::pair<std::string, Change>> bad{
      {"input_size", [](MlpConfig& c) { c.input_size = 0; }},
      {"input_scale", [](MlpConfig& c) { c.input_scale = 0; }},
      {"num_labels", [](MlpConfig& c) { c.num_labels = 0; }},
      {"num_hidden_layers", [](MlpConfig& c) { c.num_hidden_layers = 0; }},
      {"hidden_size", [](MlpConfig& c) { c.hidden_size = -1; }},
      {"hidden_size", [](MlpConfig& c) { c.hidden_size = (1 << 17) + 1; }},
      {"dropout", [](MlpConfig& c) { c.dropout = 1; }},
      {"dropout", [](MlpConfig& c) { c.dropout = std::numeric_limits<double>::quiet_NaN(); }},
      {"input_size", [](MlpConfig& c) { c.hidden_size = 1 << 16, c.input_size = 1 << 20; }}};
  EXPECT_NO_THROW(mlp_config().validate());
  for (const auto& [field, change] : bad) {
    MlpConfig config = mlp_config();
    change(config);
    EXPECT_EQ(thrown<ConfigError>([&] { make_mlp(config, 5); }).field, "model." + field);
  }
  EXPECT_EQ(thrown<ConfigError>([&] { make_mlp(mlp_config(), 0); }).field, "train.batch_size");
}

}  // namespace
}  // namespace spillway
