#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/models/small_rnn.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/same_bits.h"
#include "tests/support/run/training_run.h"

/// Whole runs of recurrent networks, in chunks of steps, undivided and in pieces.
namespace spillway::testing {
namespace {

using enum RnnPreset;

struct RnnCase {
  std::string name;
  RnnPreset preset;
  RnnPieces pieces;
};

void PrintTo(const RnnCase& each, std::ostream* out) { *out << each.name; }

std::vector<double> plain_rnn_losses(const TrialConfig& trial, const RnnConfig& config) {
  const auto values = initial_values(trial);
  std::vector<at::Tensor> params;
  for (const auto& [name, value] : values) params.push_back(value);
  const auto value = [&](const std::string& name) { return values.at(name); };
  const std::int64_t predictions = std::max<std::int64_t>(1, config.num_predictions());
  return plain_training(trial, params, [&](const at::Tensor& tokens) {
    return plain_rnn_loss(config, tokens, value) / (tokens.size(0) * predictions);
  });
}

/// Trained as plain_training() does.
TrialConfig sgd_trial(const RnnConfig& config) {
  TrialConfig trial = rnn_trial(config);
  trial.train.optimizer = OptimizerKind::sgd;
  trial.train.learning_rate = 1;
  trial.train.weight_decay = trial.train.max_grad_norm = 0;
  trial.train.lr_scheduler_type = LrSchedulerType::constant;
  trial.train.warmup_ratio = 0;
  return trial;
}

class RnnTraining : public ::testing::TestWithParam<RnnCase> {
 protected:
  static RnnConfig config(double dropout = 0.1) {
    RnnConfig config = small_rnn(GetParam().preset, dropout);
    config.pieces = GetParam().pieces;
    if (config.pieces.hidden > 1) config.chunk_steps = 1, config.max_position_embeddings = 6;
    return config;
  }
  static TrialConfig trial() { return rnn_trial(config()); }
};

TEST_P(RnnTraining, HasTheLossesOfPlainTraining) {
  RnnConfig whole = config(/*dropout=*/0);
  whole.pieces = {};
  TrialConfig trial = sgd_trial(whole);
  const std::vector<double> plain = plain_rnn_losses(trial, whole);
  trial.model = rnn_trial(config(/*dropout=*/0)).model;
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  ASSERT_EQ(spilled.losses.size(), 20u) << spilled.reason;
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-5);
  TrialConfig control = sgd_trial(whole);
  control.train.learning_rate *= 1.05;  // a slightly different optimizer shows
  EXPECT_GT(largest_difference(plain_rnn_losses(control, whole), plain), 1e-4);
}

/// Sums are added in another order, and nothing else changes.
TEST_P(RnnTraining, HasTheSameLossesForChunksOfAnyLength) {
  RnnConfig chunked = config(/*dropout=*/0);
  chunked.pieces.hidden = 1;
  const TrialResult reference = train(session_of(1, kAmple), sgd_trial(chunked)).trials[0];
  for (const std::int64_t steps : {2, 3, 10}) {
    chunked.chunk_steps = steps;
    const TrialResult other = train(session_of(1, kAmple), sgd_trial(chunked)).trials[0];
    ASSERT_EQ(other.losses.size(), 20u) << other.reason;
    EXPECT_NE(other.weights_xxh3, reference.weights_xxh3) << steps;
    EXPECT_LT(largest_difference(other.losses, reference.losses), 1e-5) << steps;
  }
}

TEST_P(RnnTraining, KeepsItsBitsOverBudgetsOrdersAndLanes) {
  expect_same_bits_over_budgets_orders_and_lanes(trial());
}

TEST_P(RnnTraining, KeepsItsBitsInBf16) {
  TrialConfig bf16 = trial();
  bf16.train.dtype = bf16.train.gradient_dtype = FloatType::bf16;
  bf16.train.virtual_nodes = bf16.train.reduction_groups = 2;
  const TrialResult resident = train(session_of(1, kAmple), bf16).trials[0];
  expect_same_bits_when_spilled(bf16, resident);
  EXPECT_LT(resident.losses.back(), resident.losses.front());
}

TEST_P(RnnTraining, KeepsItsBitsAfterAResume) { expect_same_bits_after_a_resume(trial()); }

INSTANTIATE_TEST_SUITE_P(, RnnTraining,
                         ::testing::Values(RnnCase{"Classifier", rnntc, {}},
                                           RnnCase{"LanguageModel", rnnlm, {}},
                                           RnnCase{"LanguageModelInPieces", rnnlm, {3, 1}},
                                           RnnCase{"TranslationInPieces", nmt, {3, 2}}),
                         [](const auto& test) { return test.param.name; });

void expect_bits_of_one_device(const RnnConfig& config,
                               const std::vector<StrategyConfig>& strategies) {
  TrialConfig trial = rnn_trial(config);
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  for (const StrategyConfig& strategy : strategies) {
    trial.train.strategy = strategy;
    const RunResult placed = train(session_of(strategy.num_tracks(), kAmple), trial);
    for (const DeviceResult& device : placed.devices) EXPECT_GT(device.ops, 0u);
    expect_same_bits(placed.trials[0], resident);
    expect_within_budgets(placed);
  }
}

/// Layers on devices by depth, and chunks of one layer on devices by time.
TEST(RnnStrategy, KeepsTheBitsOfOneDevice) {
  expect_bits_of_one_device(small_rnn(nmt, 0.1, /*pieces=*/2),
                            {{{{{"*"}, {0}}, {{"decoder.*", "output", "head"}, {1}}}},
                             {{{{"*"}, {0}},
                               {{"*.0.1", "*.1.0"}, {1}},
                               {{"*.0.2", "*.1.2"}, {2}},
                               {{"head"}, {0, 1}, 2}}}});
}

RnnConfig with_hidden_pieces(std::int64_t pieces, double dropout = 0.1) {
  RnnConfig config = small_rnn(rnnlm, dropout);
  config.max_position_embeddings = 4;
  config.chunk_steps = 1;
  config.pieces.hidden = pieces;
  return config;
}

/// A part of each step on each device.
TEST(RnnStrategy, KeepsTheBitsOfOneDeviceByHiddenFeatures) {
  expect_bits_of_one_device(with_hidden_pieces(3),
                            {{{{{"*"}, {0}}, {{"lstm.*/1"}, {1}}, {{"lstm.*/2"}, {2}}}},
                             {{{{"*"}, {0, 1}}, {{"lstm.0.*/2", "lstm.1.*/0"}, {1, 0}}}}});
}

TEST(RnnControl, DiffersForOtherPiecesGroupsAndMasks) {
  expect_other_bits_of_controls(rnn_trial(small_rnn(rnnlm, 0.1, /*pieces=*/3)),
                                rnn_trial(small_rnn(rnnlm)),
                                rnn_trial(small_rnn(rnnlm, /*dropout=*/0, /*pieces=*/3)));
  expect_other_bits_of_controls(rnn_trial(with_hidden_pieces(3)), rnn_trial(with_hidden_pieces(1)),
                                rnn_trial(with_hidden_pieces(3, /*dropout=*/0)));
}

}  // namespace
}  // namespace spillway::testing
