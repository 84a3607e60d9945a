#include "models/pictures/cnn.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/pictures/cnn_graph.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/run_layers.h"
#include "tests/support/models/small_cnn.h"

namespace spillway {
namespace {

using testing::layer_names;
using testing::LayersResult;
using testing::random_parameters;
using testing::run_layers;
using testing::small_cnn;
using testing::thrown;
using Names = std::vector<std::string>;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kSamples = 6;

at::Tensor rows_of_digits() {
  const at::Tensor pixels = at::arange(kSamples * 64).square().add(3).remainder(17);
  return at::cat({pixels.view({kSamples, 64}), at::arange(kSamples).unsqueeze(1)}, 1);
}

const ParamSpec& param_of(const ModelSpec& spec, const std::string& name) {
  const auto found = std::ranges::find(spec.params, name, &ParamSpec::name);
  if (found == spec.params.end()) throw Error("no parameter " + name);
  return *found;
}

Shape output_of(const ModelSpec& spec, const std::string& layer) {
  const auto found = std::ranges::find(spec.layers, layer, &LayerSpec::name);
  if (found == spec.layers.end()) throw Error("no layer " + layer);
  return spec.edges[at(found->outputs.at(0))].tensor.shape();
}

TEST(Cnn, TrainsLikeAPlainImplementation) {
  const auto model = make_cnn(small_cnn(/*drop=*/0), kSamples);
  const std::vector<at::Tensor> params = random_parameters(model->spec);
  std::map<std::string, at::Tensor> plain;
  for (std::size_t p = 0; p < params.size(); ++p) {
    const ParamSpec& spec = model->spec.params[p];
    plain[spec.name] = params[p].detach().clone().requires_grad_(spec.trainable);
  }
  const LayersResult ours = run_layers(*model, params, rows_of_digits());
  const at::Tensor loss = testing::plain_small_cnn(
      rows_of_digits(), [&](const std::string& name) { return plain.at(name); });
  EXPECT_EQ(ours.last.weight, kSamples);
  EXPECT_TRUE(at::allclose(ours.last.output, loss, 1e-5));
  ours.last.output.backward();
  loss.backward();
  for (std::size_t p = 0; p < params.size(); ++p) {
    const ParamSpec& spec = model->spec.params[p];
    if (!spec.trainable) continue;
    EXPECT_GT(params[p].grad().abs().max().item<float>(), 1e-4) << spec.name;
    EXPECT_TRUE(at::allclose(params[p].grad(), plain.at(spec.name).grad(), 1e-3, 1e-4))
        << spec.name;
  }
}

TEST(Cnn, IsALayerForEachConvolutionPoolingAndProduct) {
  const ModelSpec spec = make_cnn(small_cnn(), kSamples)->spec;
  EXPECT_EQ(layer_names(spec), (Names{"conv1", "pool", "left", "right", "conv2", "fc1", "fc2"}));
  EXPECT_EQ(small_cnn().num_layers(), 7);
  EXPECT_EQ(spec.layers[4].inputs.size(), 3u) << "a concatenation and a residual edge";
  EXPECT_EQ(spec.layers[5].inputs.size(), 1u) << "pooled in two ways";
  EXPECT_EQ(spec.layers[6].inputs.back(), 0) << "labels";
  EXPECT_TRUE(spec.layers[4].kind.ends_with("+relu+dropout")) << spec.layers[4].kind;
  EXPECT_EQ(output_of(spec, "conv2"), (Shape{kSamples, 6, 4, 4}));
  EXPECT_EQ(param_of(spec, "left.weight").tensor.shape(), (Shape{5, 6, 1, 3}));
  EXPECT_EQ(param_of(spec, "fc1.weight").tensor.shape(), (Shape{7, 12}));
  EXPECT_FALSE(param_of(spec, "conv2.bn.weight").decay);
  EXPECT_TRUE(param_of(spec, "conv2.bn.running_var").is_observed());
}

TEST(Cnn, AddsAndDropsInALayerOfItsOwnWhatOthersRead) {
  CnnConfig config = small_cnn();
  config.layers[8].inputs = {"sum"};  // the means, so the sum has two readers
  config.layers[5] = {
      .name = "conv2", .out_channels = 6, .kernel_size = {1, 1}, .activation = CnnActivation::relu};
  const auto model = make_cnn(config, kSamples);
  EXPECT_EQ(layer_names(model->spec),
            (Names{"conv1", "pool", "left", "right", "conv2", "sum", "drop", "fc1", "fc2"}));
  const auto params = random_parameters(model->spec);
  EXPECT_NO_THROW(run_layers(*model, params, rows_of_digits()).last.output.backward());
}

struct Known {
  CnnPreset preset;
  std::int64_t num_channels, image_size, num_classes, num_parameters;
  std::string layer;  ///< before the linear layers
  Shape output;
};

/// LeNet-5: the sum of its layers (156 + 2,416 + 48,120 + 10,164 + 850), with full connections
/// between its convolutions. The others: the sizes that torchvision's documentation gives for
/// alexnet, inception_v3 (27,161,264, of which 3,326,696 are the auxiliary classifier) and
/// resnet101.
const std::vector<Known>& known_presets() {
  static const std::vector<Known> all{
      {CnnPreset::lenet, 1, 32, 10, 61'706, "pool2", {1, 16, 5, 5}},
      {CnnPreset::alexnet, 3, 224, 1000, 61'100'840, "features.12", {1, 256, 6, 6}},
      {CnnPreset::inception_v3,
       3,
       299,
       1000,
       27'161'264 - 3'326'696,
       "Mixed_7c.branch_pool.conv",
       {1, 192, 8, 8}},
      {CnnPreset::resnet101, 3, 224, 1000, 44'549'160, "layer4.2.conv3", {1, 2048, 7, 7}}};
  return all;
}

CnnConfig config_of(const Known& known) {
  return {.preset = known.preset,
          .num_channels = known.num_channels,
          .image_size = known.image_size,
          .num_classes = known.num_classes};
}

TEST(CnnPresets, HaveTheKnownSizes) {
  for (const Known& known : known_presets()) {
    const ModelSpec spec = make_cnn(config_of(known), 1)->spec;
    EXPECT_EQ(spec.num_parameters(), known.num_parameters) << to_string(known.preset);
    EXPECT_EQ(output_of(spec, known.layer), known.output);
  }
}

TEST(CnnPresets, HaveTheNamesOfTorchvision) {
  const auto names = [](std::size_t preset, const std::string& name) {
    return param_of(make_cnn(config_of(known_presets()[preset]), 1)->spec, name).tensor.shape();
  };
  EXPECT_EQ(names(1, "classifier.6.weight"), (Shape{1000, 4096}));
  EXPECT_EQ(names(2, "Mixed_6b.branch7x7dbl_5.conv.weight"), (Shape{192, 128, 1, 7}));
  EXPECT_EQ(names(2, "Mixed_7a.branch7x7x3_4.bn.running_var"), (Shape{192}));
  EXPECT_EQ(names(3, "layer3.22.conv3.weight"), (Shape{1024, 256, 1, 1}));
  EXPECT_EQ(names(3, "layer4.0.downsample.1.bias"), (Shape{2048}));
}

/// A preset is the list of layers that a user could write.
TEST(CnnPresets, AreListsOfLayers) {
  for (const Known& known : known_presets()) {
    const CnnConfig preset = config_of(known);
    CnnConfig written = preset;
    written.preset = CnnPreset::none;
    written.layers = preset.all_layers();
    const ModelSpec a = make_cnn(preset, 2)->spec, b = make_cnn(written, 2)->spec;
    EXPECT_EQ(layer_names(a), layer_names(b));
    EXPECT_EQ(a.num_parameters(), b.num_parameters());
  }
}

TEST(CnnPresets, TrainWithSmallPicturesAndWidths) {
  for (Known known : known_presets()) {
    CnnConfig config = config_of(known);
    config.num_classes = 10;
    config.width_mult = 1.0 / 16;
    config.image_size = known.preset == CnnPreset::lenet          ? 32
                        : known.preset == CnnPreset::inception_v3 ? 75
                                                                  : 64;
    const auto model = make_cnn(config, 2);
    const auto params = random_parameters(model->spec);
    const std::int64_t numbers = config.num_channels * config.image_size * config.image_size;
    const at::Tensor rows = at::arange(2 * (numbers + 1)).remainder(10).view({2, numbers + 1});
    const LayersResult result = run_layers(*model, params, rows);
    result.last.output.backward();
    EXPECT_GT(params[0].grad().abs().max().item<float>(), 0) << to_string(known.preset);
    EXPECT_LT(model->spec.num_parameters(), known.num_parameters / 4);
  }
}

TEST(CnnPresets, RefusePicturesThatAreTooSmall) {
  CnnConfig config = config_of(known_presets()[1]);
  config.image_size = 32;
  const auto error = thrown<ConfigError>([&] { config.validate(); });
  EXPECT_EQ(error.field, "model.image_size");
  EXPECT_EQ(error.problem,
            "is 32, which does not fit model.preset: alexnet with model.width_mult: 1: kernel_size "
            "of layer 'features.12' is 3 x 3, but it reads pictures of 1 x 1 with padding of 0 x "
            "0; use a smaller kernel, more padding or larger pictures");
}

/// The error of a changed small_cnn().
ConfigError error_of(const std::function<void(CnnConfig&)>& change, std::int64_t vn_size = 4) {
  CnnConfig config = small_cnn();
  change(config);
  return thrown<ConfigError>([&] { make_cnn(config, vn_size); });
}

void expect_error(const std::function<void(CnnConfig&)>& change, const std::string& field,
                  const std::string& problem) {
  const ConfigError error = error_of(change);
  EXPECT_EQ(error.field, field);
  EXPECT_NE(error.problem.find(problem), std::string::npos) << error.what();
}

TEST(Cnn, ChecksNamesAndInputs) {
  expect_error([](auto& c) { c.layers[3].inputs = {"pol"}; }, "model.layers[3].inputs",
               "names 'pol', which is no layer; did you mean 'pool'?");
  expect_error([](auto& c) { c.layers[3].inputs = {"both"}; }, "model.layers[3].inputs",
               "names 'both', which is not before this layer");
  expect_error([](auto& c) { c.layers[0].inputs = {"conv1"}; }, "model.layers[0].inputs",
               "names 'conv1', which is not before");
  expect_error([](auto& c) { c.layers[4].inputs = {"left"}; }, "model.layers[4].inputs",
               "has 1 layer, but a layer of type concat reads several");
  expect_error(
      [](auto& c) {
        c.layers[2].inputs = {"pool", "conv1"};
      },
      "model.layers[2].inputs", "has 2 layers, but a layer of type conv reads one");
  expect_error([](auto& c) { c.layers[5].inputs = {"right"}; }, "model.layers[4].name",
               "is 'both', which no layer reads");
  expect_error([](auto& c) { c.layers[1].name = "conv1"; }, "model.layers[1].name",
               "is 'conv1', which another layer has");
  expect_error([](auto& c) { c.layers[0].batch_norm = "conv2"; }, "model.layers[0].batch_norm",
               "is 'conv2', which another layer has");
  expect_error([](auto& c) { c.layers[1].name = "a/b"; }, "model.layers[1].name",
               "is 'a/b', must be a name without '/'");
  expect_error([](auto& c) { c.layers[1].name = "input"; }, "model.layers[1].name", "is 'input'");
}

TEST(Cnn, ChecksSizes) {
  expect_error(
      [](auto& c) {
        c.layers[0].kernel_size = {11, 3};
      },
      "model.layers[0].kernel_size",
      "is 11 x 3, but it reads pictures of 8 x 8 with padding of 1 x 1");
  expect_error(
      [](auto& c) {
        c.layers[0].kernel_size = {3, 0};
      },
      "model.layers[0].kernel_size", "is 0, must be");
  expect_error(
      [](auto& c) {
        c.layers[1].padding = {2, 2};
      },
      "model.layers[1].padding", "is 2 x 2, must be at most half of kernel_size, which is 2 x 2");
  expect_error(
      [](auto& c) {
        c.layers[3].padding = {0, 0};
      },
      "model.layers[4].inputs", "give 5 x 4 x 4 and 6 x 2 x 2; a concat needs");
  expect_error([](auto& c) { c.layers[5].out_channels = 7; }, "model.layers[6].inputs",
               "give 7 x 4 x 4 and 6 x 4 x 4; an add needs");
  expect_error([](auto& c) { c.layers[7].type = CnnLayerType::flatten; }, "model.layers[8].inputs",
               "gives 96 features, but a layer of type global_avg_pool reads pictures");
  expect_error([](auto& c) { c.layers[13].out_features = 9; }, "model.layers[13].out_features",
               "makes 9 values, must make one for each of model.num_classes, 10");
  expect_error([](auto& c) { c.layers[13].out_features = 0; }, "model.layers[13].out_features",
               "is 0");
  expect_error([](auto& c) { c.layers[1].activation = CnnActivation::relu; },
               "model.layers[1].activation", "is relu, but a layer of type max_pool has none");
  expect_error([](auto& c) { c.layers[7].p = 1 - 1e-12; }, "model.layers[7].p",
               "1 in single precision");
  expect_error(
      [](auto& c) {
        c.layers[0].out_channels = 1 << 24;
        c.layers[0].kernel_size = {10, 10};
        c.image_size = 4096;
      },
      "model.layers[0].out_channels", "is too large");
}

TEST(Cnn, ChecksPresets) {
  expect_error([](auto& c) { c.layers = {}; }, "model.layers", "is empty; list the layers");
  expect_error([](auto& c) { c.preset = CnnPreset::lenet; }, "model.layers",
               "cannot be used with model.preset: lenet");
  expect_error([](auto& c) { c.width_mult = 2; }, "model.width_mult", "there is no model.preset");
  expect_error([](auto& c) { c.freeze = {"conv9.*"}; }, "model.freeze", "matches no parameter");
}

TEST(Cnn, RefusesAVirtualNodeWithoutVariance) {
  const auto single_pixel = [](CnnConfig& config) {
    config.layers = {{.out_channels = 10, .kernel_size = {8, 8}, .batch_norm = "true"}};
  };
  EXPECT_EQ(error_of(single_pixel, 1).field, "train.batch_size");
  CnnConfig config = small_cnn();
  single_pixel(config);
  const ModelSpec spec = make_cnn(config, 2)->spec;
  EXPECT_EQ(spec.params.front().name, "0.weight") << "the position is the name";
  EXPECT_EQ(layer_names(spec), Names{"0"}) << "the loss, too";
}

}  // namespace
}  // namespace spillway
