#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/models/padded_graph.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"

/// Graphs of a user's modules as whole runs.
namespace spillway::testing {
namespace {

const TrialResult& modules_resident() {
  static const TrialResult result = train(session_of(1, kAmple), padded_trial()).trials[0];
  return result;
}

TEST(ModuleGraph, KeepsTheBitsOfAResidentRunWhenSpilledOverLanes) {
  ASSERT_EQ(modules_resident().num_shards, 1);
  const Bytes budget = smallest_budget(padded_trial());
  const RunResult spilled = train(session_of(1, budget), padded_trial());
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_within_budgets(spilled);
  expect_same_bits(spilled.trials[0], modules_resident());
  TrialConfig lanes = padded_trial();
  lanes.train.data_parallel = 2;
  const RunResult two = train(session_of(2, budget), lanes);
  for (const DeviceResult& device : two.devices) EXPECT_GT(device.ops, 0u);
  expect_same_bits(two.trials[0], modules_resident());
}

/// The control: masks drawn for other virtual nodes.
TEST(ModuleGraph, DrawsOtherMasksForOtherVirtualNodes) {
  TrialConfig other = padded_trial();
  other.train.virtual_nodes = 8;
  expect_other_bits(train(session_of(1, kAmple), other).trials[0], modules_resident());
}

/// With nothing but LibTorch; without dropout, whose masks are Spillway's own. The weights of a
/// batch's samples do not divide into virtual nodes.
std::vector<double> modules_plain_losses(TrialConfig trial) {
  torch::manual_seed(trial.train.seed);
  PaddedModules modules(0);
  std::vector<torch::Tensor> params{modules.words->weight};
  for (const auto& mixer : {modules.first, modules.second}) {
    for (const auto& param : mixer->parameters()) params.push_back(param);
  }
  trial.train.virtual_nodes = 1;
  return plain_training(trial, params, [&](const torch::Tensor& rows) {
    const auto ids = rows.narrow(1, 0, kPaddedLength).to(torch::kInt64);
    const auto lengths = rows.select(1, kPaddedLength);
    const auto mask = padding_mask(lengths);
    const auto x = modules.second(modules.first(modules.words(ids), mask), mask);
    const auto next = rows.select(1, kPaddedLength + 1).to(torch::kInt64);
    const LossSum loss = length_weighted_loss(
        std::vector<at::Tensor>{modules.head(masked_mean(x, mask)), next, lengths});
    return loss.sum / loss.weight;
  });
}

TEST(ModuleGraph, HasTheLossesOfPlainTraining) {
  TrialConfig trial = padded_trial(0);
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  const auto plain = modules_plain_losses(trial);
  ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-4);
  EXPECT_LT(plain.back(), 0.95 * plain.front());
  trial.train.learning_rate *= 1.01;  // the control: a slightly different optimizer shows
  EXPECT_GT(largest_difference(modules_plain_losses(trial), plain), 1e-4);
}

}  // namespace
}  // namespace spillway::testing
