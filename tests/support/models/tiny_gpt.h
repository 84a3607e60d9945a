#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "models/families/gpt.h"
#include "spillway/data_source.h"
#include "spillway/trial_config.h"

/// A small GPT with dropout on made-up text, for tests of whole runs.
namespace spillway::testing {

/// Tokens of a noisy rule: learnable, and a pure function of position.
class RuleSource final : public DataSource {
 public:
  RuleSource(std::uint64_t num_samples, std::int64_t tokens, std::uint64_t first)
      : num_samples_(num_samples), tokens_(tokens), first_(first) {}
  std::uint64_t num_samples() const override { return num_samples_; }
  std::int64_t sample_elements() const override { return tokens_; }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    std::uint64_t state = (first_ + index) * 0x9E3779B97F4A7C15u + 1;
    std::int64_t token = static_cast<std::int64_t>(state % 61);
    for (std::int64_t& value : values_of<std::int64_t>(row)) {
      value = token;
      state = state * 6364136223846793005u + 1442695040888963407u;
      token = (token * 7 + 3 + static_cast<std::int64_t>((state >> 33) % 3)) % 61;
    }
  }

 private:
  std::uint64_t num_samples_;
  std::int64_t tokens_;
  std::uint64_t first_;
};

inline GptConfig tiny_gpt() {
  GptConfig config;
  config.vocab_size = 64;
  config.num_hidden_layers = 3;
  config.hidden_size = 32;
  config.num_attention_heads = 2;
  config.max_position_embeddings = 16;
  config.dropout = 0.1;
  return config;
}

inline TrialConfig tiny_trial(const std::string& name = "tiny",
                              const GptConfig& model = tiny_gpt()) {
  TrialConfig trial;
  trial.name = name;
  trial.model = [model](std::int64_t vn_size) { return make_gpt(model, vn_size); };
  const std::int64_t tokens = model.max_position_embeddings + 1;
  trial.data =
      std::make_shared<DataSplit>(DataSplit{std::make_shared<RuleSource>(500, tokens, 0),
                                            std::make_shared<RuleSource>(64, tokens, 1'000'000)});
  trial.train.seed = 7;
  trial.train.batch_size = 16;
  trial.train.virtual_nodes = 8;
  trial.train.reduction_groups = 8;
  trial.train.max_steps = 20;
  trial.train.learning_rate = 3e-3;
  trial.train.weight_decay = 0.1;
  trial.train.max_grad_norm = 0.5;
  trial.train.warmup_ratio = 0.1;
  trial.train.eval_steps = 10;
  trial.train.eval_batches = 2;
  return trial;
}

}  // namespace spillway::testing
