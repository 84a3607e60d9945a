#include "models/text/rnn.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/run_layers.h"
#include "tests/support/models/small_rnn.h"
#include "tests/support/models/tiny_gpt.h"

namespace spillway {
namespace {

using testing::random_parameters;
using testing::relative_difference;
using testing::run_layers;
using testing::small_rnn;
using testing::thrown;
using Names = std::vector<std::string>;
using enum RnnPreset;

constexpr RnnPreset kPresets[]{none, rnntc, rnnlm, nmt};

Names layers_of(const RnnConfig& config) { return testing::layer_names(make_rnn(config, 3)->spec); }

Names params_of(const RnnConfig& config) {
  const auto model = make_rnn(config, 3);
  Names names;
  for (const ParamSpec& param : model->spec.params) names.push_back(param.name);
  return names;
}

at::Tensor tokens_of(const RnnConfig& config) {
  const std::int64_t count = 3 * (config.max_position_embeddings + 1);
  return at::arange(count).mul(17).add(3).remainder(config.vocab_size).view({3, -1});
}

TEST(Rnn, HasALayerForEachChunkOfSteps) {
  EXPECT_EQ(layers_of(small_rnn(rnnlm)),
            (Names{"embed", "lstm.0.0", "lstm.0.1", "lstm.0.2", "lstm.1.0", "lstm.1.1", "lstm.1.2",
                   "output", "head"}));
  EXPECT_EQ(layers_of(small_rnn(rnntc)), (Names{"embed", "lstm.0.0", "lstm.0.1", "lstm.0.2",
                                                "lstm.1.0", "lstm.1.1", "lstm.1.2", "head"}));
  RnnConfig translation = small_rnn(nmt);
  translation.chunk_steps = 5;
  EXPECT_EQ(layers_of(translation),
            (Names{"encoder.embed", "encoder.0.0", "encoder.0.1", "encoder.1.0", "encoder.1.1",
                   "decoder.embed", "decoder.0.0", "decoder.0.1", "decoder.1.0", "decoder.1.1",
                   "attention.0", "attention.1", "output", "head"}));
}

/// Only pieces of one layer read an edge that pieces read: their gradients do not wait for others.
TEST(Rnn, HasALayerForEachPieceOfAStep) {
  RnnConfig config = small_rnn(rnnlm);
  config.chunk_steps = 1;
  config.max_position_embeddings = 2;
  config.pieces.hidden = 3;
  EXPECT_EQ(layers_of(config),
            (Names{"embed",          "embed.0",        "lstm.0.0/0", "lstm.0.0/1", "lstm.0.0/2",
                   "embed.1",        "lstm.0.0.state", "lstm.0.1/0", "lstm.0.1/1", "lstm.0.1/2",
                   "lstm.0.0",       "lstm.1.0/0",     "lstm.1.0/1", "lstm.1.0/2", "lstm.0.1",
                   "lstm.1.0.state", "lstm.1.1/0",     "lstm.1.1/1", "lstm.1.1/2", "lstm.1.0",
                   "lstm.1.1",       "output",         "head"}));
  const ModelSpec spec = make_rnn(config, 3)->spec;
  const auto edge = [&](const std::string& name) {
    return std::ranges::find(spec.edges, name, &EdgeSpec::name);
  };
  EXPECT_EQ(edge("lstm.0.0/1")->tensor.shape(), (std::vector<std::int64_t>{3, 2, 5}));
  for (const char* name : {"embed.0", "embed.1", "lstm.0.0.state", "lstm.0.0", "lstm.1.0.state"}) {
    EXPECT_EQ(edge(name)->reading_pieces, 3) << name;
  }
}

/// A piece has the rows of each gate that belong to its hidden features.
TEST(Rnn, DividesEachGateAmongPieces) {
  RnnConfig config = small_rnn(rnnlm);
  config.chunk_steps = 1;
  config.pieces.hidden = 3;
  const ModelSpec spec = make_rnn(config, 3)->spec;
  const ParamSpec& weight = spec.params[6];
  EXPECT_EQ(weight.name, "lstm.weight_hh_l0/1");
  EXPECT_EQ(weight.tensor_name(), "lstm.weight_hh_l0");
  EXPECT_EQ(weight.tensor.shape(), (std::vector<std::int64_t>{20, 16}));
  EXPECT_EQ(std::tuple(weight.stored.outer, weight.stored.begin, weight.stored.end),
            std::tuple(4, 5, 10));
}

TEST(Rnn, CountsItsLayers) {
  for (const RnnPreset preset : kPresets) {
    for (const std::int64_t steps : {1, 3, 5, 10, 99}) {
      RnnConfig config = small_rnn(preset);
      config.chunk_steps = steps;
      const auto layers = static_cast<std::int64_t>(layers_of(config).size());
      EXPECT_EQ(config.num_layers(), layers) << to_string(preset) << " " << steps;
    }
  }
}

TEST(Rnn, NamesParametersAsPyTorchDoes) {
  const Names lstm{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                   "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"};
  Names expected{"embed.weight"};
  for (const std::string& name : lstm) expected.push_back("lstm." + name);
  expected.insert(expected.end(), {"head.weight", "head.bias"});
  EXPECT_EQ(params_of(small_rnn(rnnlm)), expected);
  const ModelSpec spec = make_rnn(small_rnn(rnnlm), 3)->spec;
  EXPECT_EQ(spec.params[1].tensor.shape(), (std::vector<std::int64_t>{64, 12}));
  EXPECT_EQ(spec.params[5].tensor.shape(), (std::vector<std::int64_t>{64, 16}));
  for (const ParamSpec& param : spec.params) {
    EXPECT_EQ(param.decay, param.tensor.dims.size() == 2) << param.name;
  }
}

TEST(Rnn, UsesAParameterOfAnLstmInEachChunk) {
  const ModelSpec spec = make_rnn(small_rnn(rnnlm), 3)->spec;
  for (int p = 0; p < static_cast<int>(spec.params.size()); ++p) {
    const bool is_lstm = spec.params[static_cast<std::size_t>(p)].name.starts_with("lstm.");
    EXPECT_EQ(spec.num_uses(p), is_lstm ? 3 : 1);
  }
  RnnConfig tied = small_rnn(rnnlm);
  tied.embedding_size = 0;
  tied.tie_word_embeddings = true;
  EXPECT_EQ(make_rnn(tied, 3)->spec.num_uses(0), 2);
}

/// States travel in the edge of a chunk.
TEST(Rnn, GivesAChunkARowMoreThanSteps) {
  const ModelSpec spec = make_rnn(small_rnn(rnnlm), 3)->spec;
  EXPECT_EQ(spec.edges[2].name, "lstm.0.0");
  EXPECT_EQ(spec.edges[2].tensor.shape(), (std::vector<std::int64_t>{3, 5, 16}));
  EXPECT_EQ(spec.edges[4].tensor.shape(), (std::vector<std::int64_t>{3, 3, 16})) << "2 steps";
  EXPECT_EQ(spec.layers[2].inputs, (std::vector<int>{1, 2})) << "embedding and state";
  EXPECT_EQ(spec.layers[4].inputs, (std::vector<int>{2})) << "the layer below";
}

TEST(Rnn, HasTheSizesOfItsPresetUnlessTheyAreGiven) {
  const auto sizes = [](RnnConfig config) {
    const RnnConfig full = config.with_defaults();
    return std::tuple(full.num_hidden_layers, full.hidden_size, full.embedding_size);
  };
  EXPECT_EQ(sizes({}), std::tuple(2, 128, 128));
  EXPECT_EQ(sizes({.preset = rnntc}), std::tuple(4, 1024, 1024));
  EXPECT_EQ(sizes({.preset = rnnlm}), std::tuple(2, 2048, 2048));
  EXPECT_EQ(sizes({.preset = nmt}), std::tuple(2, 1024, 1024));
  EXPECT_EQ(sizes({.preset = nmt, .hidden_size = 9}), std::tuple(2, 9, 9));
  EXPECT_EQ(sizes({.preset = rnnlm, .embedding_size = 7, .num_hidden_layers = 3}),
            std::tuple(3, 2048, 7));
}

TEST(Rnn, GivesChunksOfOneShapeTheSameCost) {
  const ModelSpec spec = make_rnn(small_rnn(rnnlm), 3)->spec;
  std::map<std::string, std::string> kinds;
  for (const LayerSpec& layer : spec.layers) kinds[layer.name] = layer.kind;
  EXPECT_EQ(kinds["lstm.0.1"], kinds["lstm.1.1"]);
  EXPECT_NE(kinds["lstm.0.0"], kinds["lstm.0.1"]) << "has no state to read";
  EXPECT_NE(make_rnn(small_rnn(rnnlm, 0), 3)->spec.layers[1].kind, kinds["lstm.0.0"]);
}

/// Losses and gradients of a model and of torch::nn::LSTM.
class RnnForward : public ::testing::TestWithParam<RnnPreset> {
 protected:
  static void expect_plain(const RnnConfig& config) {
    const auto model = make_rnn(config, 3);
    const std::vector<at::Tensor> params = random_parameters(model->spec);
    std::map<std::string, at::Tensor> values;
    for (std::size_t p = 0; p < params.size(); ++p) {
      values[model->spec.params[p].name] = params[p];
    }
    const at::Tensor tokens = tokens_of(config);
    const at::Tensor chain = run_layers(*model, params, tokens).last.output;
    const at::Tensor plain = testing::plain_rnn_loss(
        config, tokens, [&](const std::string& name) { return values.at(name); });
    EXPECT_LT(relative_difference(chain, plain), 1e-5);
    const auto of_chain = torch::autograd::grad({chain}, params);
    const auto of_plain = torch::autograd::grad({plain}, params);
    for (std::size_t p = 0; p < params.size(); ++p) {
      const std::string& name = model->spec.params[p].name;
      EXPECT_LT(relative_difference(of_chain[p], of_plain[p]), 1e-4) << name;
      EXPECT_GT(of_plain[p].norm().item<double>(), 1e-6) << name;
    }
  }
};

TEST_P(RnnForward, EqualsALstmOfLibTorchForChunksOfAnyLength) {
  for (const std::int64_t steps : {1, 3, 4, 10, 99}) {
    RnnConfig config = small_rnn(GetParam(), /*dropout=*/0);
    config.chunk_steps = steps;
    expect_plain(config);
  }
  if (GetParam() == rnntc) return;
  RnnConfig tied = small_rnn(GetParam(), /*dropout=*/0);
  tied.embedding_size = tied.hidden_size;
  tied.tie_word_embeddings = true;
  expect_plain(tied);
}

TEST_P(RnnForward, HasTheSameBitsWithoutGradMode) {
  const RnnConfig config = small_rnn(GetParam(), /*dropout=*/0.3);
  const auto model = make_rnn(config, 3);
  const std::vector<at::Tensor> params = random_parameters(model->spec);
  const auto loss = [&](bool training) {
    return run_layers(*model, params, tokens_of(config), training).last.output.item<float>();
  };
  const float with_grad = loss(true);
  const at::NoGradGuard guard;
  EXPECT_EQ(loss(true), with_grad);
  EXPECT_NE(loss(false), with_grad) << "dropout shows";
}

INSTANTIATE_TEST_SUITE_P(, RnnForward, ::testing::Values(rnntc, rnnlm, nmt),
                         [](const auto& test) { return std::string(to_string(test.param)); });

struct BadRnn {
  std::string message;
  std::function<void(RnnConfig&)> change;
};

TEST(RnnConfig, ReportsFieldValueAndRemedy) {
  const std::vector<BadRnn> all{
      {"model.vocab_size: is 0, must be an integer from 1 to 16777216",
       [](RnnConfig& c) { c.vocab_size = 0; }},
      {"model.hidden_size: is -1, must be", [](RnnConfig& c) { c.hidden_size = -1; }},
      {"model.embedding_size: is -1, must be", [](RnnConfig& c) { c.embedding_size = -1; }},
      {"model.num_hidden_layers: is 1025, must", [](RnnConfig& c) { c.num_hidden_layers = 1025; }},
      {"model.max_position_embeddings: is 0, must",
       [](RnnConfig& c) { c.max_position_embeddings = 0; }},
      {"model.chunk_steps: is 0, must", [](RnnConfig& c) { c.chunk_steps = 0; }},
      {"model.num_classes: is 0, must", [](RnnConfig& c) { c.num_classes = 0; }},
      {"model.dropout: is 1, must", [](RnnConfig& c) { c.dropout = 1; }},
      {"model.pieces.vocabulary: is 33, but a layer has only 32 tokens; use at most 32",
       [](RnnConfig& c) { c.vocab_size = 32, c.pieces.vocabulary = 33; }},
      {"model.pieces.hidden: is 17, but a layer has only 16 features; use at most 16",
       [](RnnConfig& c) { c.chunk_steps = 1, c.pieces.hidden = 17; }},
      {"model.pieces.hidden: is 8, but 200 steps in 8 pieces each are more than 1024 pieces; use "
       "at most 5",
       [](RnnConfig& c) { c.max_position_embeddings = 200, c.pieces.hidden = 8; }},
      {"model.pieces.hidden: is 2, but 2000 steps in 2 pieces each are more than 1024 pieces; use "
       "at most 1",
       [](RnnConfig& c) { c.max_position_embeddings = 2000, c.pieces.hidden = 2; }},
      {"model.pieces.hidden: is 2, but model.chunk_steps is 4; every step reads the whole state of "
       "the one before: write model.chunk_steps: 1",
       [](RnnConfig& c) { c.pieces.hidden = 2; }},
      {"model.hidden_size: is too large: a tensor of 524288 x 131072",
       [](RnnConfig& c) { c.hidden_size = 1 << 17; }},
      {"model.vocab_size: is too large",
       [](RnnConfig& c) { c.hidden_size = 1 << 14, c.vocab_size = 1 << 21; }},
      {"model.max_position_embeddings: is 21, must be even with model.preset: nmt, whose source "
       "and target are halves of it; write 22",
       [](RnnConfig& c) { c.preset = nmt, c.max_position_embeddings = 21; }},
      {"model.chunk_steps: is 2, which divides 4096 steps into 2048 chunks, more than 1024; write "
       "at least 4",
       [](RnnConfig& c) { c.chunk_steps = 2, c.max_position_embeddings = 4096; }},
      {"model.tie_word_embeddings: is true, but model.embedding_size is 12 and model.hidden_size "
       "is 16; write false, or embedding_size: 16",
       [](RnnConfig& c) { c.tie_word_embeddings = true; }},
      {"model.tie_word_embeddings: is true, but model.preset: rnntc has a head of classes; write "
       "false",
       [](RnnConfig& c) { c.preset = rnntc, c.embedding_size = 0, c.tie_word_embeddings = true; }}};
  EXPECT_NO_THROW(small_rnn(rnnlm).validate());
  for (const BadRnn& bad : all) {
    RnnConfig config = small_rnn(rnnlm);
    bad.change(config);
    const std::string said = thrown<ConfigError>([&] { config.validate(); }).what();
    EXPECT_TRUE(said.starts_with(bad.message)) << said << "\nnot " << bad.message;
    EXPECT_THROW(make_rnn(config, 3), ConfigError);
  }
}

TEST(RnnConfig, LimitsTheSamplesOfAVirtualNode) {
  for (const std::int64_t vn_size : {std::int64_t{0}, std::int64_t{1} << 30}) {
    const auto error = thrown<ConfigError>([&] { make_rnn(small_rnn(rnnlm), vn_size); });
    EXPECT_EQ(error.field, "train.batch_size");
  }
}

TEST(RnnConfig, HasPiecesOfAtLeast2048TokensOr512FeaturesIfAutomatic) {
  RnnConfig config = small_rnn(rnnlm);
  config.pieces = {0, 0};
  EXPECT_EQ(config.with_defaults().pieces.vocabulary, 1);
  config.vocab_size = 10'000;
  EXPECT_EQ(config.with_defaults().pieces.vocabulary, 4);
  config.hidden_size = 1024;
  EXPECT_EQ(config.with_defaults().pieces.hidden, 1) << "chunks of several steps";
  config.chunk_steps = 1;
  EXPECT_EQ(config.with_defaults().pieces.hidden, 2);
  config.max_position_embeddings = 1000;
  EXPECT_EQ(config.with_defaults().pieces.hidden, 1) << "at most 1,024 pieces";
}

}  // namespace
}  // namespace spillway
