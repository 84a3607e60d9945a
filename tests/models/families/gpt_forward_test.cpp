#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/base/dropout.h"
#include "models/families/gpt.h"
#include "tests/support/models/run_layers.h"

namespace spillway {
namespace {

using testing::context_of;
using testing::random_parameters;
using testing::relative_difference;
using testing::run_layers;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kSamples = 3;

GptConfig forward_config(double dropout) {
  GptConfig config;
  config.vocab_size = 40;
  config.num_hidden_layers = 2;
  config.hidden_size = 24;
  config.num_attention_heads = 3;
  config.intermediate_size = 56;
  config.max_position_embeddings = 9;
  config.dropout = dropout;
  config.initializer_range = 0.3;  // large enough that every part affects the loss
  return config;
}

at::Tensor tokens_of(const GptConfig& config) {
  const std::int64_t count = kSamples * (config.max_position_embeddings + 1);
  const at::Tensor ids = at::arange(count).mul(17).add(3).remainder(config.vocab_size);
  return ids.view({kSamples, -1});
}

/// An independent implementation of the same model.
class PlainGpt {
 public:
  PlainGpt(const GptConfig& config, const ModelSpec& spec, const Tensors& params, bool training)
      : config_(config), training_(training) {
    for (std::size_t p = 0; p < params.size(); ++p) params_[spec.params[p].name] = params[p];
  }

  at::Tensor loss(const at::Tensor& tokens) {
    const std::int64_t positions = config_.max_position_embeddings;
    at::Tensor x = params_["wte.weight"].index({tokens.slice(1, 0, positions)});
    x = drop(x + params_["wpe.weight"].unsqueeze(0));
    for (std::int64_t block = 0; block < config_.num_hidden_layers; ++block) {
      const std::string h = "h." + std::to_string(block) + ".";
      x = x + drop(attention(h, norm(h + "ln_1", x)));
      x = x + drop(mlp(h, norm(h + "ln_2", x)));
    }
    const at::Tensor logits = norm("ln_f", x).matmul(params_["wte.weight"].t());
    const at::Tensor targets = tokens.slice(1, 1).unsqueeze(2);
    return -(logits - logits.logsumexp(2, true)).gather(2, targets).sum();
  }

 private:
  at::Tensor norm(const std::string& name, const at::Tensor& x) {
    const at::Tensor centered = x - x.mean(-1, true);
    const at::Tensor variance = centered.square().mean(-1, true);
    return centered / (variance + config_.layer_norm_eps).sqrt() * params_[name + ".weight"] +
           params_[name + ".bias"];
  }
  at::Tensor linear(const std::string& name, const at::Tensor& x) {
    return x.matmul(params_[name + ".weight"].t()) + params_[name + ".bias"];
  }
  at::Tensor attention(const std::string& h, const at::Tensor& x) {
    const std::int64_t positions = x.size(1), channels = x.size(2);
    const std::int64_t head_size = channels / config_.num_attention_heads;
    const at::Tensor qkv = linear(h + "attn.qkv", x);
    const at::Tensor future = at::ones({positions, positions}, at::kBool).triu(1);
    Tensors heads;
    for (std::int64_t head = 0; head < config_.num_attention_heads; ++head) {
      const auto part = [&](std::int64_t which) {
        return qkv.narrow(2, which * channels + head * head_size, head_size);
      };
      at::Tensor scores =
          part(0).matmul(part(1).transpose(1, 2)) / std::sqrt(static_cast<double>(head_size));
      scores = scores.masked_fill(future, -INFINITY);
      heads.push_back(scores.softmax(-1).matmul(part(2)));
    }
    return linear(h + "attn.proj", at::cat(heads, 2));
  }
  at::Tensor mlp(const std::string& h, const at::Tensor& x) {
    const at::Tensor z = linear(h + "mlp.fc", x);
    const at::Tensor inner = std::sqrt(2 / M_PI) * (z + 0.044715 * z.pow(3));
    return linear(h + "mlp.proj", 0.5 * z * (1 + inner.tanh()));
  }
  /// Dropout is the last operation of each layer except the head.
  at::Tensor drop(const at::Tensor& x) {
    return dropout(x, config_.dropout, context_of(next_layer_++, training_));
  }

  GptConfig config_;
  bool training_;
  std::uint32_t next_layer_ = 0;
  std::map<std::string, at::Tensor> params_;
};

struct TestGpt {
  explicit TestGpt(double dropout)
      : config(forward_config(dropout)),
        model(make_gpt(config, kSamples)),
        params(random_parameters(model->spec)),
        tokens(tokens_of(config)) {}
  at::Tensor chain(bool training) const {
    return run_layers(*model, params, tokens, training).last.output;
  }
  at::Tensor plain(bool training) const {
    return PlainGpt(config, model->spec, params, training).loss(tokens);
  }

  GptConfig config;
  std::unique_ptr<Model> model;
  Tensors params;
  at::Tensor tokens;
};

TEST(GptForward, EqualsAPlainImplementation) {
  const TestGpt gpt(0.2);
  for (const bool training : {false, true}) {
    const auto chain = gpt.chain(training), plain = gpt.plain(training);
    EXPECT_EQ(chain.dim(), 0);
    EXPECT_LT(relative_difference(chain, plain), 1e-5) << training;
  }
  EXPECT_GT(relative_difference(gpt.chain(true), gpt.plain(false)), 1e-3) << "dropout shows";
}

TEST(GptForward, HasTheGradientsOfAPlainImplementation) {
  const TestGpt gpt(0.2);
  const auto chain = torch::autograd::grad({gpt.chain(true)}, gpt.params);
  const auto plain = torch::autograd::grad({gpt.plain(true)}, gpt.params);
  for (std::size_t p = 0; p < chain.size(); ++p) {
    EXPECT_LT(relative_difference(chain[p], plain[p]), 1e-4) << gpt.model->spec.params[p].name;
    EXPECT_GT(plain[p].norm().item<double>(), 1e-3) << gpt.model->spec.params[p].name;
  }
}

TEST(GptForward, DependsOnEveryParameter) {
  const TestGpt gpt(0);
  const auto base = gpt.chain(true);
  for (std::size_t p = 0; p < gpt.params.size(); ++p) {
    auto changed = gpt.params;
    changed[p] = changed[p].detach() * 1.5 + 0.1;
    const auto loss = run_layers(*gpt.model, changed, gpt.tokens).last.output;
    EXPECT_GT(relative_difference(loss, base), 1e-5) << gpt.model->spec.params[p].name;
  }
}

TEST(GptForward, WeighsByTheNumberOfTargets) {
  const TestGpt gpt(0.2);
  EXPECT_EQ(run_layers(*gpt.model, gpt.params, gpt.tokens).last.weight, 27);
}

TEST(GptForward, HasTheSameBitsInGradMode) {
  const TestGpt gpt(0.2);
  for (const bool training : {false, true}) {
    const auto with = gpt.chain(training);
    EXPECT_TRUE(with.requires_grad());
    const at::NoGradGuard no_grad;
    const auto without = gpt.chain(training);
    EXPECT_FALSE(without.requires_grad());
    EXPECT_TRUE(at::equal(with, without)) << training;
  }
}

TEST(GptForward, IgnoresTheContextWithoutDropout) {
  const TestGpt none(0), some(0.2);
  EXPECT_TRUE(at::equal(none.chain(true), none.chain(false)));
  EXPECT_TRUE(at::equal(none.chain(true), some.chain(false)));
  EXPECT_FALSE(at::equal(some.chain(true), some.chain(false)));
}

TEST(GptForward, RefusesATokenOutsideTheVocabulary) {
  TestGpt gpt(0);
  gpt.tokens.index_put_({1, 2}, gpt.config.vocab_size);
  EXPECT_THROW(gpt.chain(false), c10::Error);
  gpt.tokens = tokens_of(gpt.config);
  gpt.tokens.index_put_({0, -1}, gpt.config.vocab_size);  // a target only
  EXPECT_THROW(gpt.chain(false), c10::Error);
}

}  // namespace
}  // namespace spillway
