#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/spec/stored_tensor.h"
#include "models/families/gpt.h"
#include "models/families/mlp.h"
#include "models/pictures/cnn.h"
#include "models/text/rnn.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/run_layers.h"
#include "tests/support/models/small_cnn.h"
#include "tests/support/models/small_rnn.h"
#include "tests/support/models/whole_tensors.h"

/// Models whose layers are divided into pieces.
namespace spillway {
namespace {

using testing::layer_names;
using testing::random_parameters;
using testing::run_layers;
using testing::small_rnn;
using testing::thrown;
using Values = std::map<std::string, at::Tensor>;

GptConfig gpt_of(const GptPieces& pieces) {
  GptConfig config;
  config.vocab_size = 50;
  config.num_hidden_layers = 2;
  config.hidden_size = 24;
  config.num_attention_heads = 6;
  config.intermediate_size = 20;
  config.max_position_embeddings = 5;
  config.dropout = 0;
  config.pieces = pieces;
  return config;
}

MlpConfig mlp_of(std::int64_t pieces) {
  MlpConfig config;
  config.hidden_size = 22;
  config.num_hidden_layers = 3;
  config.pieces.hidden = pieces;
  return config;
}

/// Whole tensors with made-up values, by name.
Values whole_values(const Model& whole) {
  Values values;
  const std::vector<at::Tensor> params = random_parameters(whole.spec);
  for (std::size_t p = 0; p < params.size(); ++p) {
    values[whole.spec.params[p].name] = params[p].detach();
  }
  return values;
}

/// The parts of whole tensors that the parameters of a model hold.
std::vector<at::Tensor> parts_of(const Values& values, const ModelSpec& spec) {
  std::vector<at::Tensor> params;
  for (const ParamSpec& param : spec.params) {
    const at::Tensor whole = values.at(param.tensor_name()).contiguous().view({-1});
    at::Tensor part = at::empty({param.tensor.elements()});
    for_each_run(param, [&](const StoredRun& run) {
      part.narrow(0, run.in_param, run.length).copy_(whole.narrow(0, run.in_tensor, run.length));
    });
    params.push_back(part.view(param.tensor.shape()).requires_grad_(param.trainable));
  }
  return params;
}

/// The gradients of all parameters, put together to whole tensors.
Values gradients_of(const std::vector<at::Tensor>& params, const Model& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& param : params) gradients.push_back(param.grad());
  return testing::whole_tensors(model.spec, gradients);
}

void expect_same_function(const Model& divided, const Model& whole, const at::Tensor& batch) {
  const Values values = whole_values(whole);
  const auto of_divided = parts_of(values, divided.spec), of_whole = parts_of(values, whole.spec);
  const auto loss_of = [&](const Model& model, const std::vector<at::Tensor>& params) {
    return run_layers(model, params, batch, /*training=*/false).last.output.item<double>();
  };
  EXPECT_NEAR(loss_of(divided, of_divided) / loss_of(whole, of_whole), 1, 1e-5) << "evaluation";
  const auto run = run_layers(divided, of_divided, batch),
             expected = run_layers(whole, of_whole, batch);
  for (const auto& [name, observed] : run.observed) {
    if (!expected.observed.contains(name)) continue;  // a part
    EXPECT_TRUE(at::allclose(observed, expected.observed.at(name), 1e-5, 1e-6)) << name;
  }
  const at::Tensor &a = run.last.output, &b = expected.last.output;
  EXPECT_NEAR(a.item<double>(), b.item<double>(), 1e-5 * std::abs(b.item<double>()));
  a.backward();
  b.backward();
  const Values gradients = gradients_of(of_whole, whole);
  for (const auto& [name, gradient] : gradients_of(of_divided, divided)) {
    const at::Tensor& of_name = gradients.at(name);
    EXPECT_LT((gradient - of_name).norm().item<double>(), 1e-5 * of_name.norm().item<double>())
        << name;
    EXPECT_GT(of_name.norm().item<double>(), 0) << name;
  }
}

TEST(GptPieces, ComputeTheFunctionOfTheUndividedModel) {
  const at::Tensor tokens = at::randint(50, {3, 6}, at::kLong);
  const auto whole = make_gpt(gpt_of({}), 3);
  for (const GptPieces& pieces : {GptPieces{6, 1, 1}, {1, 20, 1}, {1, 1, 50}, {4, 3, 7}}) {
    expect_same_function(*make_gpt(gpt_of(pieces), 3), *whole, tokens);
  }
}

/// Its dropout too.
TEST(RnnPieces, ComputeTheFunctionOfTheUndividedModel) {
  using enum RnnPreset;
  for (const RnnPreset preset : {rnntc, rnnlm, nmt}) {
    RnnConfig config = small_rnn(preset, /*dropout=*/0.3);
    for (const RnnPieces& pieces : {RnnPieces{2, 1}, {64, 1}, {1, 2}, {1, 16}, {5, 3}}) {
      if (pieces.hidden > 1) config.chunk_steps = 1;
      config.pieces = {};
      const auto whole = make_rnn(config, 3);
      config.pieces = pieces;
      const auto divided = make_rnn(config, 3);
      const at::Tensor tokens =
          at::randint(config.vocab_size, {3, config.max_position_embeddings + 1}, at::kLong);
      expect_same_function(*divided, *whole, tokens);
      EXPECT_EQ(divided->spec.has_predictions, preset == rnntc || pieces.vocabulary == 1);
    }
  }
}

TEST(MlpPieces, ComputeTheFunctionOfTheUndividedModel) {
  const at::Tensor rows = at::randint(10, {3, 65}, at::kLong);
  const auto whole = make_mlp(mlp_of(1), 3);
  for (const std::int64_t pieces : {2, 5, 22}) {
    expect_same_function(*make_mlp(mlp_of(pieces), 3), *whole, rows);
  }
}

TEST(CnnPieces, ComputeTheFunctionOfTheUndividedModel) {
  const at::Tensor rows = at::randint(10, {4, 65}, at::kLong);
  const auto whole = make_cnn(testing::small_cnn(/*drop=*/0), 4);
  for (const std::int64_t pieces : {2, 3, 7}) {
    for (const CnnPieces& each : {CnnPieces{.channels = pieces},
                                  {.height = pieces},
                                  {.channels = pieces, .height = pieces + 1}}) {
      expect_same_function(*make_cnn(testing::small_cnn(/*drop=*/0, each), 4), *whole, rows);
    }
  }
}

/// Where others read the input, it is copied; sums, dropout and the loss come behind the pieces.
TEST(CnnPieces, AreLayersOfTheirOwn) {
  const auto model = make_cnn(testing::small_cnn(0.1, {.channels = 2}), 4);
  EXPECT_EQ(layer_names(model->spec),
            (std::vector<std::string>{"conv1/0", "conv1/1", "pool", "left/in", "left/0", "left/1",
                                      "right", "conv2/0", "conv2/1", "conv2", "fc1/in", "fc1/0",
                                      "fc1/1", "fc2/0", "fc2/1", "fc2"}));
  EXPECT_EQ(model->spec.layers[9].draws_as, 4) << "as without pieces";
  EXPECT_TRUE(model->spec.has_predictions);
}

/// Rows that a piece reads from another are copied; a batch normalization has the moments of all
/// pieces. Dropout, and what has no rows, is not divided.
TEST(CnnPieces, AreRowsOfPictures) {
  const auto model = make_cnn(testing::small_cnn(0.1, {.height = 2}), 4);
  EXPECT_EQ(layer_names(model->spec),
            (std::vector<std::string>{
                "conv1/conv.0", "conv1/moments.0", "conv1/conv.1", "conv1/moments.1",
                "conv1/factors", "conv1/0", "conv1/1", "pool/0", "pool/1", "left/0", "left/1",
                "right/halo.0", "right/halo.1", "right/0", "right/1", "conv2", "fc1", "fc2"}));
  const ModelSpec& spec = model->spec;
  EXPECT_EQ(spec.edges[at(spec.layers[11].outputs[0])].tensor.shape(),
            (std::vector<std::int64_t>{4, 6, 1, 4}))
      << "the row of piece 0 that piece 1 reads";
  EXPECT_EQ(spec.layers[11].piece, 0);
  EXPECT_EQ(spec.layers[12].piece, 1);
  EXPECT_EQ(spec.layers[15].draws_as, 4) << "as without pieces";
  EXPECT_EQ(spec.num_parameters(), make_cnn(testing::small_cnn(0.1), 4)->spec.num_parameters());
}

/// Kernels that reach beyond the next piece, strides, and padding at both sides.
TEST(CnnPieces, ReadWhatTheirWindowsCover) {
  const at::Tensor rows = at::randint(10, {2, 13 * 13 + 1}, at::kLong);
  CnnConfig config{.num_channels = 1, .image_size = 13, .num_classes = 10};
  using enum CnnLayerType;
  config.layers = {{.name = "wide", .out_channels = 3, .kernel_size = {7, 1}, .padding = {3, 0}},
                   {.type = max_pool, .kernel_size = {3, 2}, .stride = {2, 1}, .padding = {1, 1}},
                   {.name = "strided",
                    .out_channels = 4,
                    .kernel_size = {2, 2},
                    .stride = {3, 1},
                    .padding = {1, 0},
                    .batch_norm = "true"},
                   {.type = avg_pool, .kernel_size = {2, 2}, .stride = {1, 1}, .padding = {1, 0}},
                   {.type = linear, .out_features = 10}};
  const auto whole = make_cnn(config, 2);
  for (const std::int64_t pieces : {2, 3, 5, 13}) {
    config.pieces.height = pieces;
    expect_same_function(*make_cnn(config, 2), *whole, rows);
  }
}

TEST(CnnPieces, AreAtMostTheChannelsAndByDefaultLarge) {
  CnnConfig config{.preset = CnnPreset::alexnet, .num_classes = 10};
  config.pieces.channels = 0;
  const auto pieces_of = [&](const std::string& layer) {
    const auto model = make_cnn(config, 1);
    return std::ranges::count_if(model->spec.layers, [&](const LayerSpec& spec) {
      return spec.name.starts_with(layer + "/") && spec.name != layer + "/in";
    });
  };
  EXPECT_EQ(pieces_of("features.0"), 0) << "64 channels";
  EXPECT_EQ(pieces_of("features.3"), 2) << "192 channels";
  EXPECT_EQ(pieces_of("features.6"), 4) << "384 channels";
  EXPECT_EQ(pieces_of("classifier.1"), 8) << "4,096 outputs";
  EXPECT_EQ(pieces_of("classifier.6"), 0) << "10 outputs";
  config.pieces.channels = 64;
  EXPECT_EQ(pieces_of("classifier.6"), 10);
}

TEST(GptPieces, AreLayersOfTheirOwn) {
  const auto model = make_gpt(gpt_of({.attention = 2, .mlp = 3, .vocabulary = 4}), 3);
  const std::vector<std::string> names = layer_names(model->spec);
  const std::vector<std::string> first(names.begin(), names.begin() + 14);
  EXPECT_EQ(first, (std::vector<std::string>{"embed/0", "embed/1", "embed/2", "embed/3", "embed",
                                             "h.0.ln_1", "h.0.attn/0", "h.0.attn/1", "h.0.attn",
                                             "h.0.ln_2", "h.0.mlp/0", "h.0.mlp/1", "h.0.mlp/2",
                                             "h.0.mlp"}));
  EXPECT_EQ(names.back(), "head");
  EXPECT_FALSE(model->spec.has_predictions);
}

TEST(GptPieces, ArePowersOfTwoByDefaultIfAutomatic) {
  GptConfig config = gpt_of({.attention = 0, .mlp = 0, .vocabulary = 0});
  EXPECT_EQ(config.num_pieces(), GptPieces{}) << "a small model is not divided";
  config.hidden_size = 768;
  config.num_attention_heads = 12;
  config.intermediate_size = 0;
  config.vocab_size = 50257;
  EXPECT_EQ(config.num_pieces(), (GptPieces{.attention = 4, .mlp = 4, .vocabulary = 8}));
  config.hidden_size = 4096;
  config.num_attention_heads = 16;
  EXPECT_EQ(config.num_pieces(), (GptPieces{.attention = 8, .mlp = 8, .vocabulary = 8}));
}

TEST(GptPieces, AreAtMostAsManyAsThereIsToDivide) {
  const auto said = [](const GptPieces& pieces) {
    return std::string(thrown<ConfigError>([&] { make_gpt(gpt_of(pieces), 3); }).what());
  };
  EXPECT_NE(said({.attention = 7})
                .find("model.pieces.attention: is 7, but a layer has only 6 "
                      "heads; use at most 6"),
            std::string::npos)
      << said({.attention = 7});
  EXPECT_NE(said({.mlp = 21}).find("model.pieces.mlp"), std::string::npos);
  EXPECT_NE(said({.vocabulary = 51}).find("model.pieces.vocabulary"), std::string::npos);
  EXPECT_NE(said({.mlp = 65}).find("model.pieces.mlp: is 65"), std::string::npos);
}

}  // namespace
}  // namespace spillway
