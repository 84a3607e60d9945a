#include "models/pictures/resnet.h"
#include <torch/torch.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/plain_resnet.h"
#include "tests/support/models/run_layers.h"

namespace spillway {
namespace {

using testing::LayersResult;
using testing::PlainResnet;
using testing::random_parameters;
using testing::run_layers;
using testing::thrown;
using Names = std::vector<std::string>;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kPictures = 6;

/// Two stages of two blocks, and colour pictures.
ResnetConfig resnet_config(double dropout = 0) {
  ResnetConfig config;
  config.num_channels = 2;
  config.image_size = 5;
  config.num_labels = 4;
  config.hidden_sizes = {6, 8};
  config.depths = {2, 2};
  config.dropout = dropout;
  config.batch_norm_eps = 1e-3;
  config.batch_norm_momentum = 0.3;
  return config;
}

at::Tensor rows_of(const ResnetConfig& config) {
  const std::int64_t numbers = config.num_channels * config.image_size * config.image_size;
  const at::Tensor pixels = at::arange(kPictures * numbers).square().add(3).remainder(17);
  const at::Tensor labels = at::arange(kPictures).remainder(config.num_labels);
  return at::cat({pixels.view({kPictures, numbers}), labels.unsqueeze(1)}, 1);
}

/// With the same values by name; every value of one belongs to the other.
PlainResnet plain_with(const ResnetConfig& config, const ModelSpec& spec, const Tensors& params) {
  PlainResnet plain(config);
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < params.size(); ++p) {
    const at::Tensor value = plain->value(spec.params[p].name);
    EXPECT_TRUE(value.defined()) << spec.params[p].name;
    EXPECT_EQ(value.scalar_type(), params[p].scalar_type());
    value.copy_(params[p]);
  }
  EXPECT_EQ(params.size(), plain->parameters().size() + plain->buffers().size());
  return plain;
}

TEST(Resnet, NamesAndInitializesItsValues) {
  const ModelSpec spec = make_resnet(ResnetConfig{}, 4)->spec;
  Names names, layers;
  for (const ParamSpec& param : spec.params) {
    names.push_back(param.name);
    EXPECT_EQ(param.decay, param.tensor.dims.size() > 1) << param.name;
    EXPECT_EQ(param.trainable, !param.is_statistic()) << param.name;
    EXPECT_EQ(param.is_observed(), param.name.find("running_") != std::string::npos);
    EXPECT_EQ(param.is_statistic() && !param.is_observed(), param.name.ends_with("tracked"));
  }
  for (const LayerSpec& layer : spec.layers) layers.push_back(layer.name);
  EXPECT_EQ(layers, (Names{"conv1", "layer1.0.conv1", "layer1.0.conv2", "layer2.0.downsample.0",
                           "layer2.0.conv1", "layer2.0.conv2", "layer3.0.downsample.0",
                           "layer3.0.conv1", "layer3.0.conv2", "fc"}));
  EXPECT_EQ(static_cast<std::int64_t>(layers.size()), ResnetConfig{}.num_layers());
  EXPECT_EQ(Names(names.begin(), names.begin() + 7),
            (Names{"conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
                   "bn1.num_batches_tracked", "layer1.0.conv1.weight"}));
  EXPECT_EQ(spec.params[0].tensor.shape(), (std::vector<std::int64_t>{16, 1, 3, 3}));
  EXPECT_DOUBLE_EQ(spec.params[0].init.stddev, std::sqrt(2.0 / (16 * 9)));
  EXPECT_EQ(spec.params[4].init.kind, InitSpec::Kind::ones) << "running_var";
  EXPECT_EQ(names.back(), "fc.bias");
  EXPECT_EQ(spec.edges.back().tensor.shape(), (std::vector<std::int64_t>{4, 64, 2, 2}));
  EXPECT_EQ(spec.edges[0].tensor.shape(), (std::vector<std::int64_t>{4, 65}));
  EXPECT_EQ(spec.indices, (std::vector<IndexRange>{{64, 65, 10}}));
  EXPECT_EQ(spec.consumers(0), (std::vector<int>{0, 9})) << "pictures and labels";
  EXPECT_EQ(spec.consumers(1), (std::vector<int>{1, 2})) << "a residual edge";
}

TEST(Resnet, DoesNotCountStatisticsAsParameters) {
  const ResnetConfig config = resnet_config();
  const ModelSpec spec = make_resnet(config, kPictures)->spec;
  std::int64_t expected = 0;
  for (const auto& param : PlainResnet(config)->parameters()) expected += param.numel();
  EXPECT_EQ(spec.num_parameters(), expected);
}

TEST(Resnet, TrainsLikeAPlainImplementation) {
  const ResnetConfig config = resnet_config();
  const auto model = make_resnet(config, kPictures);
  const Tensors params = random_parameters(model->spec);
  PlainResnet plain = plain_with(config, model->spec, params);
  const LayersResult ours = run_layers(*model, params, rows_of(config), true);
  const at::Tensor loss = plain->loss(rows_of(config));
  EXPECT_EQ(ours.last.weight, kPictures);
  EXPECT_TRUE(at::allclose(ours.last.output, loss, 1e-5));
  ours.last.output.backward();
  loss.backward();
  for (std::size_t p = 0; p < params.size(); ++p) {
    const ParamSpec& spec = model->spec.params[p];
    if (!spec.trainable) continue;
    EXPECT_GT(params[p].grad().abs().max().item<float>(), 1e-4) << spec.name;
    EXPECT_TRUE(at::allclose(params[p].grad(), plain->value(spec.name).grad(), 1e-3, 1e-4))
        << spec.name;
  }
}

TEST(Resnet, ObservesTheStatisticsOfAPlainImplementation) {
  const ResnetConfig config = resnet_config();
  const auto model = make_resnet(config, kPictures);
  const Tensors params = random_parameters(model->spec);
  PlainResnet plain = plain_with(config, model->spec, params);
  const LayersResult ours = run_layers(*model, params, rows_of(config), true);
  plain->loss(rows_of(config));
  EXPECT_EQ(ours.observed.size(), 2u * 10);
  for (std::size_t p = 0; p < params.size(); ++p) {
    const ParamSpec& spec = model->spec.params[p];
    if (!spec.is_observed()) continue;
    const double momentum = *spec.statistic.momentum;
    EXPECT_EQ(momentum, 0.3);
    const at::Tensor folded = params[p] * (1 - momentum) + ours.observed.at(spec.name) * momentum;
    EXPECT_TRUE(at::allclose(folded, plain->value(spec.name), 1e-5, 1e-6)) << spec.name;
    EXPECT_FALSE(at::allclose(params[p], plain->value(spec.name), 1e-2)) << spec.name;
  }
}

TEST(Resnet, EvaluatesWithTheRunningStatistics) {
  const ResnetConfig config = resnet_config(/*dropout=*/0.5);
  const auto model = make_resnet(config, kPictures);
  const Tensors params = random_parameters(model->spec);
  PlainResnet plain = plain_with(config, model->spec, params);
  plain->eval();
  const LayersResult ours = run_layers(*model, params, rows_of(config), false);
  EXPECT_TRUE(at::allclose(ours.last.output, plain->loss(rows_of(config)), 1e-5));
  plain->train();
  EXPECT_FALSE(at::allclose(ours.last.output, plain->loss(rows_of(config)), 1e-2));
}

TEST(Resnet, IgnoresEarlierStatisticsInTraining) {
  const ResnetConfig config = resnet_config();
  const auto model = make_resnet(config, kPictures);
  const Tensors params = random_parameters(model->spec);
  Tensors others = params, before;
  for (std::size_t p = 0; p < params.size(); ++p) {
    before.push_back(params[p].detach().clone());
    if (model->spec.params[p].is_observed()) others[p] = params[p] + 3;
  }
  const LayersResult a = run_layers(*model, params, rows_of(config), true);
  const LayersResult b = run_layers(*model, others, rows_of(config), true);
  EXPECT_TRUE(a.last.output.equal(b.last.output));
  for (const auto& [name, value] : a.observed) EXPECT_TRUE(value.equal(b.observed.at(name)));
  for (std::size_t p = 0; p < params.size(); ++p)
    EXPECT_TRUE(params[p].equal(before[p])) << "written: " << model->spec.params[p].name;
  EXPECT_FALSE(
      run_layers(*model, params, rows_of(config), false)
          .last.output.equal(run_layers(*model, others, rows_of(config), false).last.output));
}

TEST(Resnet, AppliesKeyedDropoutInEveryBlock) {
  const ResnetConfig config = resnet_config(0.4);
  const auto model = make_resnet(config, kPictures);
  const Tensors params = random_parameters(model->spec);
  const LayersResult once = run_layers(*model, params, rows_of(config), true);
  EXPECT_TRUE(
      once.last.output.equal(run_layers(*model, params, rows_of(config), true).last.output));
  const auto without = make_resnet(resnet_config(), kPictures);
  EXPECT_FALSE(
      once.last.output.equal(run_layers(*without, params, rows_of(config), true).last.output));
  for (const LayerSpec& layer : model->spec.layers)
    EXPECT_EQ(layer.kind.ends_with("+dropout"),
              layer.name.starts_with("layer") && layer.name.ends_with("conv1"));
}

/// The error of make_resnet() for a configuration.
ConfigError resnet_error(const std::function<void(ResnetConfig&)>& change,
                         std::int64_t vn_size = 4) {
  ResnetConfig config = resnet_config();
  change(config);
  return thrown<ConfigError>([&] { make_resnet(config, vn_size); });
}

void expect_error(const ConfigError& error, const std::string& field, const std::string& problem) {
  EXPECT_EQ(error.field, field);
  EXPECT_NE(error.problem.find(problem), std::string::npos) << error.what();
}

TEST(Resnet, ChecksSizes) {
  expect_error(resnet_error([](auto& c) { c.hidden_sizes = {}; }), "model.hidden_sizes",
               "is empty");
  expect_error(resnet_error([](auto& c) {
                 c.hidden_sizes = {8, 0};
               }),
               "model.hidden_sizes", "is 0");
  expect_error(resnet_error([](auto& c) {
                 c.hidden_sizes = {8, 1 << 20};
               }),
               "model.hidden_sizes", "is 1048576, must be an integer from 1 to");
  expect_error(resnet_error([](auto& c) { c.depths = {1}; }), "model.depths",
               "has 1 stages, model.hidden_sizes has 2");
  expect_error(resnet_error([](auto& c) { c.depths = {1, 0}; }), "model.depths", "is 0");
  expect_error(resnet_error([](auto& c) { c.image_size = 0; }), "model.image_size", "is 0");
  expect_error(resnet_error([](auto& c) {
                 c.image_size = 4;
                 c.hidden_sizes = {2, 2, 2, 2};
                 c.depths = {1, 1, 1, 1};
               }),
               "model.hidden_sizes", "pictures of 4 x 4 cannot be halved as often");
  expect_error(resnet_error([](auto& c) { c.dropout = 1; }), "model.dropout", "below 1");
  expect_error(resnet_error([](auto& c) { c.batch_norm_eps = 0; }), "model.batch_norm_eps",
               "above 0");
  expect_error(resnet_error([](auto& c) { c.batch_norm_momentum = 2; }),
               "model.batch_norm_momentum", "at least 0 and at most 1");
  expect_error(resnet_error([](auto& c) { c.freeze = {"*.running_mean"}; }), "model.freeze",
               "matches no parameter");
}

TEST(Resnet, RefusesAVirtualNodeWithoutVariance) {
  const auto single_pixel = [](ResnetConfig& config) { config.image_size = 2; };
  expect_error(resnet_error(single_pixel, 1), "train.batch_size", "a single value has no variance");
  ResnetConfig config = resnet_config();
  single_pixel(config);
  EXPECT_NO_THROW(make_resnet(config, 2));
  EXPECT_NO_THROW(make_resnet(resnet_config(), 1));
  expect_error(resnet_error([](auto&) {}, 0), "train.batch_size", "must be at least 1");
}

}  // namespace
}  // namespace spillway
