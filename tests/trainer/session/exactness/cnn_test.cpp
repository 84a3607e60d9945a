#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/models/small_cnn.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/same_bits.h"
#include "tests/support/run/training_run.h"

/// Whole runs of graphs of convolutions, undivided and in pieces.
namespace spillway::testing {
namespace {

constexpr std::int64_t kWhole = 1, kDivided = 3;

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
  for (const std::int64_t pieces : {kWhole, kDivided}) {
    TrialConfig divided = trial;
    divided.model = cnn_trial(small_cnn(/*drop=*/0, pieces)).model;
    const auto spilled = train(session_of(1, smallest_budget(divided)), divided).trials[0];
    ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
    EXPECT_LT(largest_difference(spilled.losses, plain), 1e-5) << pieces;
  }
  trial.train.learning_rate *= 1.02;  // negative control: a slightly different optimizer shows
  EXPECT_GT(largest_difference(plain_cnn_losses(trial), plain), 1e-4);
}

class CnnTraining : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static TrialConfig trial() { return cnn_trial(small_cnn(/*drop=*/0.1, GetParam())); }
};

TEST_P(CnnTraining, KeepsItsBitsOverBudgetsOrdersAndLanes) {
  expect_same_bits_over_budgets_orders_and_lanes(trial());
}

TEST_P(CnnTraining, KeepsItsBitsAfterAResume) { expect_same_bits_after_a_resume(trial()); }

INSTANTIATE_TEST_SUITE_P(, CnnTraining, ::testing::Values(kWhole, kDivided), [](const auto& test) {
  return test.param == kWhole ? "Whole" : "InPieces";
});

TEST(CnnControl, DiffersForOtherPiecesGroupsAndMasks) {
  expect_other_bits_of_controls(cnn_trial(small_cnn(0.1, kDivided)),
                                cnn_trial(small_cnn(0.1, kWhole)),
                                cnn_trial(small_cnn(/*drop=*/0, kDivided)));
}

}  // namespace
}  // namespace spillway::testing
