#include <gtest/gtest.h>

#include "models/families/mlp.h"
#include "tests/support/models/digits.h"
#include "tests/support/models/made_up_digits.h"
#include "tests/support/run/training_run.h"

/// Whole runs of perceptrons.
namespace spillway::testing {
namespace {

MlpConfig small_mlp() {
  MlpConfig config;
  config.hidden_size = 128;
  config.num_hidden_layers = 3;
  config.dropout = 0.2;
  config.hidden_act = Activation::gelu;  // by oneDNN, which allocates its own buffers
  return config;
}

TrialConfig trial_of(const MlpConfig& model, std::shared_ptr<const DataSplit> data) {
  TrialConfig trial;
  trial.name = "mlp";
  trial.model = [model](std::int64_t vn_size) { return make_mlp(model, vn_size); };
  trial.data = std::move(data);
  trial.train.batch_size = 32;
  trial.train.virtual_nodes = 4;
  trial.train.max_steps = 20;
  trial.train.eval_steps = 10;
  return trial;
}

/// MKL computes five rows in another order if it uses several threads.
TEST(Mlp, MultipliesFiveSamplesWithOneThread) {
  const auto data = std::make_shared<const DataSplit>(split(std::make_shared<MadeUpDigits>(), 0.3));
  TrialConfig trial =
      trial_of({.num_hidden_layers = 4, .hidden_size = 32, .hidden_act = Activation::relu}, data);
  trial.train.virtual_nodes = trial.train.reduction_groups = 4;
  trial.train.batch_size = 20;
  trial.train.max_steps = 20;
  const RunResult resident = train(session_of(1, kAmple), trial);
  const RunResult spilled = train(session_of(1, smallest_budget(trial)), trial);
  EXPECT_GT(spilled.trials[0].num_shards, 1);
  expect_same_bits(spilled.trials[0], resident.trials[0]);
}

TEST(Digits, AreLearned) {
  const auto file = digits_file();
  if (!file) GTEST_SKIP() << kNoDigits;
  const auto data = std::make_shared<const DataSplit>(open_digits({*file}, 0.2));
  MlpConfig model = small_mlp();
  model.hidden_act = Activation::relu;
  TrialConfig trial = trial_of(model, data);
  trial.train.max_steps = 300;
  trial.train.learning_rate = 3e-3;
  trial.train.eval_steps = 0;
  trial.train.eval_batches = 100;
  const RunResult result = train(session_of(1, smallest_budget(trial)), trial);
  ASSERT_EQ(result.trials[0].state, TrialState::done) << result.trials[0].reason;
  EXPECT_GT(result.trials[0].num_shards, 1);
  EXPECT_NEAR(*result.trials[0].first_loss, 2.3, 0.5) << "ten equal chances: ln 10";
  // The loss of a classifier that is right nine times out of ten.
  EXPECT_LT(*result.trials[0].eval_loss, 0.4);
}

}  // namespace
}  // namespace spillway::testing
