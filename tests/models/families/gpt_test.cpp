#include "models/families/gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::thrown;
using Names = std::vector<std::string>;

GptConfig gpt_config(std::int64_t num_layers = 2) {
  GptConfig config;
  config.vocab_size = 64;
  config.num_hidden_layers = num_layers;
  config.hidden_size = 12;
  config.num_attention_heads = 3;
  config.intermediate_size = 20;
  config.max_position_embeddings = 5;
  return config;
}

ModelSpec spec_of(const GptConfig& config, std::int64_t vn_size = 4) {
  return make_gpt(config, vn_size)->spec;
}

const ParamSpec& param(const ModelSpec& spec, const std::string& name) {
  const auto found = std::ranges::find(spec.params, name, &ParamSpec::name);
  if (found == spec.params.end()) throw std::out_of_range(name);
  return *found;
}

std::int64_t expected_parameters(const GptConfig& c) {
  const std::int64_t d = c.hidden_size, f = c.mlp_size();
  const std::int64_t attention = 2 * d + (3 * d * d + 3 * d) + (d * d + d);
  const std::int64_t mlp = 2 * d + (f * d + f) + (d * f + d);
  return c.vocab_size * d + c.max_position_embeddings * d +
         c.num_hidden_layers * (attention + mlp) + 2 * d;
}

TEST(Gpt, HasAValidSpecThatMatchesItsLayers) {
  for (const std::int64_t num_layers : {1, 2, 7}) {
    const auto model = make_gpt(gpt_config(num_layers), 4);
    EXPECT_NO_THROW(model->spec.validate());
    EXPECT_EQ(model->spec.family, "gpt");
    EXPECT_EQ(model->layers.size(), model->spec.layers.size());
    EXPECT_EQ(model->layers.size(), static_cast<std::size_t>(2 * num_layers + 2));
    for (const auto& layer : model->layers) EXPECT_NE(layer, nullptr);
  }
}

TEST(Gpt, CountsParametersByTheFormula) {
  auto config = gpt_config();
  EXPECT_EQ(spec_of(config).num_parameters(), expected_parameters(config));
  EXPECT_EQ(spec_of(config).num_parameters(), 3220);
  config.intermediate_size = 0;
  EXPECT_EQ(spec_of(config).num_parameters(), expected_parameters(config));
  EXPECT_EQ(param(spec_of(config), "h.0.mlp.fc.weight").tensor.shape(),
            (std::vector<std::int64_t>{48, 12}));
  GptConfig small;  // GPT-2 124M
  small.vocab_size = 50257;
  small.num_hidden_layers = 12;
  small.hidden_size = 768;
  small.num_attention_heads = 12;
  small.max_position_embeddings = 1024;
  EXPECT_EQ(spec_of(small, 1).num_parameters(), 124'439'808);
}

TEST(Gpt, NamesParametersInCanonicalOrder) {
  Names names;
  for (const auto& p : spec_of(gpt_config(2)).params) names.push_back(p.name);
  Names expected{"wte.weight", "wpe.weight"};
  for (const std::string block : {"h.0.", "h.1."}) {
    for (const std::string layer :
         {"ln_1", "attn.qkv", "attn.proj", "ln_2", "mlp.fc", "mlp.proj"}) {
      expected.push_back(block + layer + ".weight");
      expected.push_back(block + layer + ".bias");
    }
  }
  expected.insert(expected.end(), {"ln_f.weight", "ln_f.bias"});
  EXPECT_EQ(names, expected);
}

TEST(Gpt, NamesLayersFrontToBack) {
  Names names;
  for (const auto& layer : spec_of(gpt_config(2)).layers) names.push_back(layer.name);
  EXPECT_EQ(names, (Names{"embed", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "head"}));
}

TEST(Gpt, TiesOnlyTheEmbedding) {
  const auto spec = spec_of(gpt_config());
  EXPECT_EQ(spec.layers.front().params.front(), 0);
  EXPECT_EQ(spec.layers.back().params.back(), 0);
  EXPECT_EQ(spec.num_uses(0), 2);
  for (int p = 1; p < static_cast<int>(spec.params.size()); ++p) EXPECT_EQ(spec.num_uses(p), 1);
}

TEST(Gpt, GivesEdgesTheShapesOfAVirtualNode) {
  const auto spec = spec_of(gpt_config(), 4);
  ASSERT_EQ(spec.edges.size(), 6u);
  EXPECT_EQ(spec.edges[0].name, "tokens");
  EXPECT_EQ(spec.edges[0].tensor.shape(), (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(spec.edges[0].tensor.dtype, DType::i64);
  EXPECT_FALSE(spec.edges[0].differentiable);
  EXPECT_EQ(spec.indices, (std::vector<IndexRange>{{0, 6, 64}}));
  EXPECT_EQ(spec.consumers(0), (std::vector<int>{0, 5})) << "embed reads inputs, head targets";
  for (std::size_t e = 1; e < spec.edges.size(); ++e) {
    EXPECT_EQ(spec.edges[e].tensor.shape(), (std::vector<std::int64_t>{4, 5, 12}));
    EXPECT_EQ(spec.edges[e].tensor.dtype, DType::f32);
    EXPECT_TRUE(spec.edges[e].differentiable);
  }
}

TEST(Gpt, DecaysOnlyMatrices) {
  for (const auto& p : spec_of(gpt_config()).params) {
    EXPECT_EQ(p.decay, p.tensor.dims.size() == 2) << p.name;
    EXPECT_TRUE(p.trainable);
  }
}

TEST(Gpt, FreezesParametersThatMatchAPattern) {
  auto config = gpt_config(12);
  config.freeze = {"wte.*", "h.1.*", "h.?.mlp.fc.bias", "ln_f.weight"};
  for (const auto& p : spec_of(config).params) {
    const bool frozen = p.name == "wte.weight" || p.name.starts_with("h.1.") ||
                        (p.name.ends_with("mlp.fc.bias") && p.name.size() == 15) ||
                        p.name == "ln_f.weight";
    EXPECT_EQ(p.trainable, !frozen) << p.name;
  }
}

TEST(Gpt, RefusesToFreezeNothingOrAll) {
  const auto problem = [](const std::vector<std::string>& patterns) {
    auto config = gpt_config();
    config.freeze = patterns;
    const auto error = thrown<ConfigError>([&] { spec_of(config); });
    EXPECT_EQ(error.field, "model.freeze");
    return error.problem;
  };
  EXPECT_EQ(problem({"wte.*", "h.9.*"}),
            "'h.9.*' matches no parameter; names are such as wte.weight");
  EXPECT_EQ(problem({"wte"}), "'wte' matches no parameter; names are such as wte.weight");
  EXPECT_EQ(problem({"*"}), "leaves no parameter to train");
}

TEST(Gpt, InitializesAsGpt2) {
  auto config = gpt_config(8);
  config.initializer_range = 0.04;
  for (const auto& p : spec_of(config).params) {
    const bool is_norm = p.name.find("ln_") != std::string::npos;
    InitSpec expected{InitSpec::Kind::normal, 0.04};
    if (p.name.ends_with("proj.weight")) expected.stddev = 0.04 / 4;  // sqrt(2 * 8)
    if (p.name.ends_with(".bias")) expected = {InitSpec::Kind::zeros};
    if (is_norm && p.name.ends_with(".weight")) expected = {InitSpec::Kind::ones};
    EXPECT_EQ(p.init.kind, expected.kind) << p.name;
    EXPECT_DOUBLE_EQ(p.init.stddev, expected.stddev) << p.name;
  }
}

TEST(Gpt, GivesLayersOfOneKindTheSameCost) {
  const auto kinds = [](const GptConfig& config) {
    Names all;
    for (const auto& layer : spec_of(config).layers) all.push_back(layer.kind);
    return all;
  };
  const auto base = kinds(gpt_config());
  EXPECT_EQ(std::set<std::string>(base.begin(), base.end()).size(), 4u);
  EXPECT_EQ(base[1], base[3]);
  EXPECT_EQ(base[2], base[4]);
  auto other_heads = gpt_config(), no_dropout = gpt_config();
  other_heads.num_attention_heads = 4;
  no_dropout.dropout = 0;
  EXPECT_NE(kinds(other_heads)[1], base[1]);
  EXPECT_EQ(kinds(other_heads)[2], base[2]);
  for (const std::size_t layer : {0u, 1u, 2u}) EXPECT_NE(kinds(no_dropout)[layer], base[layer]);
}

struct BadConfig {
  std::string field;
  std::function<void(GptConfig&)> change;
};

std::vector<BadConfig> bad_configs() {
  constexpr std::int64_t kTooLarge = (std::int64_t{1} << 24) + 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<BadConfig> all;
  const auto add = [&](const std::string& field, auto GptConfig::*member, const auto& values) {
    for (const auto value : values)
      all.push_back({field, [=](GptConfig& config) { config.*member = value; }});
  };
  using Sizes = std::vector<std::int64_t>;
  using Numbers = std::vector<double>;
  add("vocab_size", &GptConfig::vocab_size, Sizes{0, -1, kTooLarge});
  add("num_hidden_layers", &GptConfig::num_hidden_layers, Sizes{0, -1, (1 << 16) + 1});
  add("hidden_size", &GptConfig::hidden_size, Sizes{0, -12, kTooLarge});
  add("num_attention_heads", &GptConfig::num_attention_heads, Sizes{0, -3, 5, 24, kTooLarge});
  add("intermediate_size", &GptConfig::intermediate_size, Sizes{-1, kTooLarge});
  add("max_position_embeddings", &GptConfig::max_position_embeddings, Sizes{0, -1, kTooLarge});
  add("dropout", &GptConfig::dropout, Numbers{-0.1, 1, 1 - 1e-12, 2, kNan});
  add("initializer_range", &GptConfig::initializer_range, Numbers{0, -1, kNan, kInfinity});
  add("layer_norm_eps", &GptConfig::layer_norm_eps, Numbers{0, -1, kNan, kInfinity});
  return all;
}

TEST(GptConfig, NamesEveryInvalidField) {
  const auto valid = gpt_config();
  EXPECT_NO_THROW(valid.validate());
  for (const auto& [field, change] : bad_configs()) {
    auto config = gpt_config();
    change(config);
    EXPECT_EQ(thrown<ConfigError>([&] { config.validate(); }).field, "model." + field);
    EXPECT_THROW(make_gpt(config, 4), ConfigError) << field;
  }
}

TEST(GptConfig, ReportsTheValueAndTheRemedy) {
  auto config = gpt_config();
  config.num_attention_heads = 5;
  EXPECT_STREQ(thrown<ConfigError>([&] { config.validate(); }).what(),
               "model.num_attention_heads: is 5, must be a divisor of model.hidden_size, "
               "which is 12; write 4");
  config = gpt_config();
  config.vocab_size = 0;
  EXPECT_STREQ(thrown<ConfigError>([&] { config.validate(); }).what(),
               "model.vocab_size: is 0, must be an integer from 1 to 16777216");
}

TEST(GptConfig, LimitsATensorToOneRandomDraw) {
  GptConfig config = gpt_config();
  config.num_attention_heads = 1;
  const auto field = [&] { return thrown<ConfigError>([&] { config.validate(); }).field; };
  config.hidden_size = 1 << 17;
  EXPECT_EQ(field(), "model.hidden_size") << "query, key and value";
  config.hidden_size = 1 << 16;
  config.intermediate_size = 0;
  EXPECT_NO_THROW(config.validate()) << "exactly 2^34 in the mlp";
  config.intermediate_size = (1 << 18) + 1;
  EXPECT_EQ(field(), "model.intermediate_size");
  config = gpt_config();
  config.hidden_size = 1 << 12;
  config.num_attention_heads = 1;
  config.vocab_size = 1 << 23;
  EXPECT_EQ(field(), "model.vocab_size");
  config.vocab_size = 256;
  config.max_position_embeddings = 1 << 23;
  EXPECT_EQ(field(), "model.max_position_embeddings");
}

TEST(Gpt, LimitsTheSamplesOfAVirtualNode) {
  auto config = gpt_config();
  config.hidden_size = 1 << 10;
  config.num_attention_heads = 1;
  config.max_position_embeddings = 1 << 4;
  constexpr std::int64_t kMost = 1 << 20;  // times 2^14 elements
  EXPECT_NO_THROW(make_gpt(config, kMost));
  for (const std::int64_t vn_size : {std::int64_t{0}, std::int64_t{-1}, kMost + 1}) {
    const auto error = thrown<ConfigError>([&] { make_gpt(config, vn_size); });
    EXPECT_EQ(error.field, "train.batch_size");
    EXPECT_NE(error.problem.find("virtual nodes of " + std::to_string(vn_size) + " samples"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace spillway
