#include <gtest/gtest.h>

#include "tests/support/models/padded_graph.h"
#include "tests/support/models/training_rows.h"
#include "tests/support/run/training_run.h"

/// Graphs of a user's modules as whole runs.
namespace spillway::testing {
namespace {

const TrialResult& resident() {
  static const TrialResult result = train(session_of(1, kAmple), padded_trial()).trials[0];
  return result;
}

TEST(ModuleGraph, SpilledOverLanesIsResidentBitByBit) {
  ASSERT_EQ(resident().num_shards, 1);
  const Bytes budget = smallest_budget(padded_trial());
  const RunResult spilled = train(session_of(1, budget), padded_trial());
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_within_budgets(spilled);
  expect_same_bits(spilled.trials[0], resident());
  TrialConfig lanes = padded_trial();
  lanes.train.data_parallel = 2;
  const RunResult two = train(session_of(2, budget), lanes);
  for (const DeviceResult& device : two.devices) EXPECT_GT(device.ops, 0u);
  expect_same_bits(two.trials[0], resident());
}

/// The control: masks drawn for other virtual nodes.
TEST(ModuleGraph, ControlOtherVirtualNodesDrawOtherMasks) {
  TrialConfig other = padded_trial();
  other.train.virtual_nodes = 8;
  expect_other_bits(train(session_of(1, kAmple), other).trials[0], resident());
}

/// With nothing but LibTorch; without dropout, whose masks are Spillway's own.
std::vector<double> plain_training(const TrialConfig& trial) {
  torch::manual_seed(trial.train.seed);
  PaddedModules modules(0);
  std::vector<torch::Tensor> params{modules.words->weight};
  for (const auto& mixer : {modules.first, modules.second}) {
    for (const auto& param : mixer->parameters()) params.push_back(param);
  }
  torch::optim::AdamW optimizer(
      params, torch::optim::AdamWOptions(trial.train.learning_rate).weight_decay(0).eps(1e-8));
  std::vector<double> losses;
  for (std::int64_t step = 0; step < trial.train.max_steps; ++step) {
    const auto rows = rows_of(trial, step, 0, trial.train.batch_size);
    const auto ids = rows.narrow(1, 0, kPaddedLength).to(torch::kInt64);
    const auto lengths = rows.select(1, kPaddedLength);
    const auto mask = padding_mask(lengths);
    auto x = modules.second(modules.first(modules.words(ids), mask), mask);
    const auto next = rows.select(1, kPaddedLength + 1).to(torch::kInt64);
    const LossSum loss = length_weighted_loss(
        std::vector<at::Tensor>{modules.head(masked_mean(x, mask)), next, lengths});
    optimizer.zero_grad();
    const auto mean = loss.sum / loss.weight;
    mean.backward();
    optimizer.step();
    losses.push_back(mean.item<double>());
  }
  return losses;
}

TEST(ModuleGraph, HasTheLossesOfPlainTraining) {
  TrialConfig trial = padded_trial(0);
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  const auto plain = plain_training(trial);
  ASSERT_EQ(spilled.losses.size(), 20u) << spilled.reason;
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-4);
  EXPECT_LT(plain.back(), 0.95 * plain.front());
  trial.train.learning_rate *= 1.01;  // the control: a slightly different optimizer shows
  EXPECT_GT(largest_difference(plain_training(trial), plain), 1e-4);
}

}  // namespace
}  // namespace spillway::testing
