#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/models/small_cnn.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/random/random_strategy.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/same_bits.h"
#include "tests/support/run/training_run.h"

/// Whole runs of graphs of convolutions, undivided and in pieces.
namespace spillway::testing {
namespace {

constexpr CnnPieces kWhole, kDivided{.channels = 3}, kInRows{.channels = 3, .height = 3};

std::string name_of(const CnnPieces& pieces) {
  return pieces == kWhole ? "Whole" : pieces == kDivided ? "InPieces" : "InRows";
}

std::vector<double> plain_cnn_losses(const TrialConfig& trial) {
  const auto values = initial_values(trial);
  std::vector<at::Tensor> params;
  for (const auto& [name, value] : values) params.push_back(value);
  return plain_training(trial, params, [&](const at::Tensor& rows) {
    return plain_small_cnn(rows, [&](const std::string& name) { return values.at(name); }) /
           rows.size(0);
  });
}

TEST(Cnn, HasTheLossesOfPlainTraining) {
  TrialConfig trial = cnn_trial(small_cnn(/*drop=*/0));
  trial.data = made_up_digits(/*augment=*/false);
  trial.train.optimizer = OptimizerKind::sgd;
  trial.train.learning_rate = 0.01;
  trial.train.weight_decay = trial.train.max_grad_norm = 0;
  trial.train.lr_scheduler_type = LrSchedulerType::constant;
  const std::vector<double> plain = plain_cnn_losses(trial);
  for (const CnnPieces& pieces : {kWhole, kDivided, kInRows}) {
    TrialConfig divided = trial;
    divided.name = name_of(pieces);
    divided.model = cnn_trial(small_cnn(/*drop=*/0, pieces)).model;
    const auto spilled = train(session_of(1, smallest_budget(divided)), divided).trials[0];
    ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
    EXPECT_LT(largest_difference(spilled.losses, plain), 1e-5) << divided.name;
  }
  trial.train.learning_rate *= 1.02;  // negative control: a slightly different optimizer shows
  EXPECT_GT(largest_difference(plain_cnn_losses(trial), plain), 1e-4);
}

class CnnTraining : public ::testing::TestWithParam<CnnPieces> {
 protected:
  static TrialConfig trial() { return cnn_trial(small_cnn(/*drop=*/0.1, GetParam())); }
};

TEST_P(CnnTraining, KeepsItsBitsOverBudgetsOrdersAndLanes) {
  expect_same_bits_over_budgets_orders_and_lanes(trial());
}

TEST_P(CnnTraining, KeepsItsBitsAfterAResume) { expect_same_bits_after_a_resume(trial()); }

/// Each piece on a device of its own, then any strategies.
TEST_P(CnnTraining, KeepsItsBitsWithStrategies) {
  TrialConfig placed = trial();
  const TrialResult expected = train(session_of(1, kAmple), placed).trials[0];
  const ModelSpec model = placed.model(1)->spec;
  std::vector<StrategyConfig> strategies{{{{{"*"}, {0, 1, 2}, 3}}}};
  for (std::uint64_t seed = 1; seed <= campaign_size(4); ++seed) {
    Draw draw(seed);
    strategies.push_back(random_strategy(draw, model, placed.train.reduction_groups, 4));
  }
  for (const StrategyConfig& strategy : strategies) {
    SCOPED_TRACE(&strategy - strategies.data());
    placed.train.strategy = strategy;
    const RunResult result = train(session_of(3, smallest_budget(placed) * 3 / 2), placed);
    expect_same_bits(result.trials[0], expected);
    expect_within_budgets(result);
    if (&strategy > strategies.data()) continue;
    for (const DeviceResult& device : result.devices) EXPECT_GT(device.ops, 0u);
  }
}

TEST_P(CnnTraining, KeepsItsBitsInBf16) {
  TrialConfig bf16 = trial();
  bf16.train.dtype = bf16.train.gradient_dtype = FloatType::bf16;
  const TrialResult expected = train(session_of(1, kAmple), bf16).trials[0];
  const RunResult spilled = train(session_of(1, smallest_budget(bf16)), bf16);
  expect_same_bits(spilled.trials[0], expected);
  expect_within_budgets(spilled);
}

/// Pieces of one layer differ in padding and in what they read, and so in memory.
TEST(CnnInRows, NeedsNoMoreMemoryThanMeasured) {
  using enum CnnLayerType;
  CnnConfig config{.num_channels = 1, .image_size = 8, .num_classes = 10, .input_scale = 1.0 / 16};
  config.layers = {
      {.name = "a", .out_channels = 64, .kernel_size = {1, 1}, .activation = CnnActivation::relu},
      {.type = max_pool, .kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
      {.type = dropout, .name = "drop", .p = 0.1},
      {.name = "b", .out_channels = 64, .kernel_size = {3, 3}, .padding = {1, 1}},
      {.type = add, .inputs = {"b", "drop"}},
      {.name = "c",
       .out_channels = 16,
       .kernel_size = {3, 3},
       .stride = {2, 2},
       .padding = {1, 1},
       .batch_norm = "true"},
      {.type = linear, .out_features = 10}};
  for (const std::int64_t height : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(height);
    config.pieces.height = height;
    const TrialConfig trial = cnn_trial(config, /*vn_size=*/16);
    const TrialResult expected = train(session_of(1, kAmple), trial).trials[0];
    EXPECT_EQ(expected.reason, "");
    const RunResult spilled = train(session_of(1, smallest_budget(trial)), trial);
    expect_same_bits(spilled.trials[0], expected);
    expect_within_budgets(spilled);
  }
}

INSTANTIATE_TEST_SUITE_P(, CnnTraining, ::testing::Values(kWhole, kDivided, kInRows),
                         [](const auto& test) { return name_of(test.param); });

TEST(CnnControl, DiffersForOtherPiecesGroupsAndMasks) {
  for (const CnnPieces& pieces : {kDivided, kInRows}) {
    expect_other_bits_of_controls(cnn_trial(small_cnn(0.1, pieces)),
                                  cnn_trial(small_cnn(0.1, kWhole)),
                                  cnn_trial(small_cnn(/*drop=*/0, pieces)));
  }
}

}  // namespace
}  // namespace spillway::testing
