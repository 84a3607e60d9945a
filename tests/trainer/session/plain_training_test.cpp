#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <vector>

#include "tests/support/run/training_run.h"
#include "trainer/compute/initialize.h"

/// Compares with plain LibTorch training on whole batches.

namespace spillway::testing {
namespace {

constexpr std::int64_t kBatch = 16, kPositions = 16;

/// The same batches: the sample order is part of a trial.
torch::Tensor batch_of(const TrialConfig& trial, std::int64_t step) {
  auto tokens = torch::empty({kBatch, kPositions + 1}, torch::kInt64);
  for (std::int64_t i = 0; i < kBatch; ++i) {
    const DataSource& data = *trial.data->train;
    const auto position = static_cast<std::uint64_t>(step * kBatch + i);
    data.read(sample_at(position, data.num_samples(), trial.train.seed),
              std::as_writable_bytes(std::span(tokens[i].data_ptr<std::int64_t>(),
                                               static_cast<std::size_t>(kPositions + 1))));
  }
  return tokens;
}

/// An independent implementation of the GPT of models/families/gpt.h; `w` holds its parameters in
/// order.
torch::Tensor plain_loss(const std::vector<torch::Tensor>& w, const torch::Tensor& tokens) {
  const auto norm = [&](const torch::Tensor& x, std::size_t i) {
    return torch::layer_norm(x, {x.size(-1)}, w[i], w[i + 1], 1e-5);
  };
  auto x = torch::embedding(w[0], tokens.narrow(1, 0, kPositions)) + w[1];
  const auto mask = torch::full({kPositions, kPositions}, -INFINITY).triu(1);
  std::size_t i = 2;
  for (; i + 2 < w.size(); i += 12) {
    auto qkv = torch::linear(norm(x, i), w[i + 2], w[i + 3]).view({kBatch, kPositions, 3, 2, 16});
    const auto heads = qkv.permute({2, 0, 3, 1, 4});
    const auto scores = torch::matmul(heads[0], heads[1].transpose(-2, -1)) / 4 + mask;
    auto y = torch::matmul(torch::softmax(scores, -1), heads[2]);
    y = y.transpose(1, 2).reshape({kBatch, kPositions, 32});
    x = x + torch::linear(y, w[i + 4], w[i + 5]);
    y = torch::gelu(torch::linear(norm(x, i + 6), w[i + 8], w[i + 9]), "tanh");
    x = x + torch::linear(y, w[i + 10], w[i + 11]);
  }
  const auto logits = torch::matmul(norm(x, i), w[0].t());
  return torch::cross_entropy_loss(logits.view({-1, 64}),
                                   tokens.narrow(1, 1, kPositions).reshape(-1));
}

std::unique_ptr<torch::optim::Optimizer> plain_optimizer(const TrainConfig& train,
                                                         const std::vector<torch::Tensor>& decayed,
                                                         const std::vector<torch::Tensor>& others) {
  using torch::optim::OptimizerParamGroup;
  const auto groups = [&](const auto& options_of) {
    using Options = decltype(options_of(0.0));
    return std::vector<OptimizerParamGroup>{
        {decayed, std::make_unique<Options>(options_of(train.weight_decay))},
        {others, std::make_unique<Options>(options_of(0.0))}};
  };
  if (train.optimizer == OptimizerKind::sgd) {
    const auto options_of = [&](double decay) {
      return torch::optim::SGDOptions(0).momentum(train.momentum).weight_decay(decay);
    };
    return std::make_unique<torch::optim::SGD>(groups(options_of), options_of(0));
  }
  return std::make_unique<torch::optim::AdamW>(groups(
      [&](double decay) { return torch::optim::AdamWOptions().weight_decay(decay).eps(1e-8); }));
}

std::vector<double> plain_training(const TrialConfig& trial) {
  const TrainConfig& train = trial.train;
  const auto model = trial.model(kBatch);
  std::vector<torch::Tensor> weights, decayed, others;
  for (const ParamSpec& spec : model->spec.params) {
    std::vector<std::int64_t> shape;
    for (const Dim& dim : spec.tensor.dims) shape.push_back(dim.size);
    weights.push_back(torch::empty(shape));
    initialize(weights.back().data_ptr<float>(), spec, train.seed, weights.size() - 1);
    weights.back().requires_grad_();
    (spec.decay ? decayed : others).push_back(weights.back());
  }
  const auto optimizer = plain_optimizer(train, decayed, others);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < train.max_steps; ++step) {
    optimizer->zero_grad();
    const auto loss = plain_loss(weights, batch_of(trial, step));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(weights, train.max_grad_norm);
    const double warmup = 2, t = static_cast<double>(step);
    const double cosine = 1 + std::cos(std::numbers::pi * (t - warmup) / (20 - warmup));
    for (auto& group : optimizer->param_groups())
      group.options().set_lr(train.learning_rate * (t < warmup ? t / warmup : cosine / 2));
    optimizer->step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

class PlainTraining : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(PlainTraining, GivesTheSameLosses) {
  GptConfig model = tiny_gpt();
  model.dropout = 0;
  TrialConfig trial = tiny_trial("plain", model);
  trial.train.optimizer = GetParam();
  if (GetParam() == OptimizerKind::sgd) trial.train.learning_rate = 0.1;
  ASSERT_EQ(trial.train.batch_size, kBatch);
  ASSERT_EQ(trial.train.warmup_ratio * 20, 2);
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  const auto plain = plain_training(trial);
  ASSERT_EQ(spilled.losses.size(), 20u);
  ASSERT_EQ(plain.size(), 20u);
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-5);

  TrialConfig other = trial;  // negative control: a slightly different optimizer shows
  other.train.learning_rate *= 1.01;
  EXPECT_GT(largest_difference(plain_training(other), plain), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, PlainTraining,
                         ::testing::Values(OptimizerKind::adamw, OptimizerKind::sgd),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace spillway::testing
