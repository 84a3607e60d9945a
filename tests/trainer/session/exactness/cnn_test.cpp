#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/models/small_cnn.h"
#include "tests/support/run/interrupted.h"
#include "tests/support/run/plain_training.h"
#include "trainer/compute/initialize.h"

/// Whole runs of graphs of convolutions, undivided and in pieces.
namespace spillway::testing {
namespace {

constexpr std::int64_t kWhole = 1, kPieces = 3;

std::map<std::string, torch::Tensor> initial_values(const TrialConfig& trial) {
  std::map<std::string, torch::Tensor> values;
  const ModelSpec spec = trial.model(2)->spec;
  for (std::size_t p = 0; p < spec.params.size(); ++p) {
    const ParamSpec& param = spec.params[p];
    if (!param.trainable) continue;
    torch::Tensor& value = values[param.name] = torch::empty(param.tensor.shape());
    initialize(value.mutable_data_ptr<float>(), param, trial.train.seed, p);
    value.requires_grad_();
  }
  return values;
}

std::vector<double> plain_cnn_losses(const TrialConfig& trial) {
  const auto values = initial_values(trial);
  std::vector<torch::Tensor> params;
  for (const auto& [name, value] : values) params.push_back(value);
  return plain_training(trial, params, [&](const torch::Tensor& rows) {
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
  for (const std::int64_t pieces : {kWhole, kPieces}) {
    TrialConfig divided = trial;
    divided.model = cnn_trial(small_cnn(/*drop=*/0, pieces)).model;
    const auto spilled = train(session_of(1, smallest_budget(divided)), divided).trials[0];
    ASSERT_EQ(spilled.losses.size(), 20u) << spilled.reason;
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
  const TrialResult resident = train(session_of(1, kAmple), trial()).trials[0];
  ASSERT_EQ(resident.num_shards, 1);
  const Bytes least = smallest_budget(trial());
  using enum OrderChoice;
  for (const auto& [budget, order] : {std::pair{least, shard_major},
                                      {2 * least, automatic},
                                      {kAmple, shard_major},
                                      {kAmple, vn_major}}) {
    TrialConfig ordered = trial();
    ordered.train.order = order;
    const RunResult run = train(session_of(1, budget), ordered);
    expect_within_budgets(run);
    expect_same_bits(run.trials[0], resident);
    EXPECT_TRUE(budget > least || run.trials[0].num_shards > 2);
  }
  for (const auto& lanes : {std::vector{2, 2}, {3, 1}, {1, 1, 2}}) {
    for (const Bytes budget : {2 * least, kAmple}) {
      const auto devices = static_cast<int>(lanes.size());
      const RunResult run = train(session_of(devices, budget), with_lanes(trial(), lanes));
      for (const DeviceResult& device : run.devices) EXPECT_GT(device.ops, 0u);
      expect_same_bits(run.trials[0], resident);
    }
  }
}

TEST_P(CnnTraining, KeepsItsBitsAfterAResume) {
  const TrialResult resident = train(session_of(1, kAmple), trial()).trials[0];
  const Interrupted interrupted(trial());
  const Bytes least = smallest_budget(trial());
  const RunResult resumed = train(session_of(1, least), interrupted.continued(trial()));
  expect_same_bits(resumed.trials[0], resident);
}

INSTANTIATE_TEST_SUITE_P(, CnnTraining, ::testing::Values(kWhole, kPieces), [](const auto& test) {
  return test.param == kWhole ? "Whole" : "InPieces";
});

/// Masks are those of the undivided layers, so losses differ by rounding alone.
TEST(CnnControl, DiffersForOtherPiecesGroupsAndMasks) {
  const TrialConfig trial = cnn_trial(small_cnn(0.1, kPieces));
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  const TrialConfig whole = cnn_trial(small_cnn(0.1, kWhole));
  TrialConfig other_groups = trial;
  other_groups.train.reduction_groups = 1;
  for (const TrialConfig& control : {whole, other_groups}) {
    const TrialResult other = train(session_of(1, kAmple), control).trials[0];
    expect_other_bits(other, resident);
    EXPECT_LT(largest_difference(other.losses, resident.losses), 1e-3);
  }
  const TrialConfig undropped = cnn_trial(small_cnn(/*drop=*/0, kPieces));
  const TrialResult other = train(session_of(1, kAmple), undropped).trials[0];
  expect_other_bits(other, resident);
  EXPECT_GT(largest_difference(other.losses, resident.losses), 1e-3);
}

}  // namespace
}  // namespace spillway::testing
