#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/weights.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/run/interrupted.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"

/// Groups of parameters of a user's own model, as whole runs.
namespace spillway::testing {
namespace {

/// Biases are faster and decay, the first convolution rests, the last layer does not decay.
TrialConfig grouped_trial() {
  TrialConfig trial = net_trial(small_nets()[0]);
  trial.train.parameter_groups = {
      {.pattern = "*.bias", .learning_rate_scale = 2, .weight_decay = 0.5},
      {.pattern = "0.*", .learning_rate_scale = 0},
      {.pattern = "7.linear.weight", .learning_rate_scale = 0.25},
      {.pattern = "10.*", .weight_decay = 0.0}};
  return trial;
}

const TrialResult& groups_resident() {
  static const TrialResult result = train(session_of(1, kAmple), grouped_trial()).trials[0];
  return result;
}

TEST(ParameterGroups, KeepTheBitsOfAResidentRunWhenSpilledOverLanes) {
  const Bytes budget = smallest_budget(grouped_trial());
  const RunResult spilled = train(session_of(1, budget), grouped_trial());
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_same_bits(spilled.trials[0], groups_resident());
  const auto lanes = train(session_of(2, budget), with_lanes(grouped_trial(), {1, 1}));
  for (const DeviceResult& device : lanes.devices) EXPECT_GT(device.ops, 0u);
  expect_same_bits(lanes.trials[0], groups_resident());
}

/// The control.
TEST(ParameterGroups, ChangeBitsEachByItself) {
  for (std::size_t left_out = 0; left_out < 4; ++left_out) {
    TrialConfig trial = grouped_trial();
    auto& groups = trial.train.parameter_groups;
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(left_out));
    expect_other_bits(train(session_of(1, kAmple), trial).trials[0], groups_resident());
  }
}

TEST(ParameterGroups, ChangeNoBitWithTheValuesOfTheTrial) {
  TrialConfig trial = net_trial(small_nets()[0]);
  const TrialResult plain = train(session_of(1, kAmple), trial).trials[0];
  trial.train.parameter_groups = {{.pattern = "*"}};
  expect_same_bits(train(session_of(1, kAmple), trial).trials[0], plain);
}

std::vector<double> groups_plain_losses(const TrialConfig& trial) {
  at::manual_seed(trial.train.seed);
  auto model = conv_net();
  PlainGroup biases{.params = {}, .scale = 2, .decay = 0.5}, first{.params = {}, .scale = 0};
  PlainGroup slow{.params = {}, .scale = 0.25, .decay = trial.train.weight_decay};
  PlainGroup last{.params = {}}, others{.params = {}, .decay = trial.train.weight_decay};
  for (const auto& param : model->named_parameters()) {
    PlainGroup& group = param.key().ends_with("bias")      ? biases
                        : param.key() == "0.weight"        ? first
                        : param.key() == "7.linear.weight" ? slow
                        : param.key() == "10.weight"       ? last
                                                           : others;
    group.params.push_back(param.value());
  }
  const std::vector groups{biases, first, slow, last, others};
  return plain_training(trial, groups, [&](const at::Tensor& rows) {
    const auto logits = model->forward(rows.narrow(1, 0, 64).reshape({-1, 1, 8, 8}));
    return at::cross_entropy_loss(logits, rows.select(1, 64).to(at::kLong));
  });
}

TEST(ParameterGroups, HaveTheLossesOfGroupsInLibTorch) {
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    TrialConfig trial = grouped_trial();
    trial.train.optimizer = optimizer;
    trial.train.max_steps = 10;  // later steps multiply differences in rounding
    if (optimizer == OptimizerKind::sgd) trial.train.learning_rate = 0.1;
    const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
    ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
    EXPECT_LT(largest_difference(spilled.losses, groups_plain_losses(trial)), 1e-5);
    trial.train.parameter_groups[2].learning_rate_scale = 0.3;  // the control
    const auto other = train(session_of(1, kAmple), trial).trials[0];
    EXPECT_GT(largest_difference(other.losses, spilled.losses), 1e-5);
  }
}

TEST(ParameterGroups, KeepWeightsWhoseLearningRateIsZero) {
  TrialConfig trial = grouped_trial();
  trial.keep_weights = true;
  Session session(session_of(1, kAmple));
  const JobId id = session.submit(trial);
  session.run();
  at::manual_seed(trial.train.seed);
  const auto initial = conv_net()->named_parameters();
  for (const NamedTensor& weight : session.weights(id)) {
    EXPECT_EQ(weight.value.equal(initial[weight.name]), weight.name == "0.weight") << weight.name;
  }
}

TEST(ParameterGroups, ScaleARateThatSetChanges) {
  const TrainValues values{.learning_rate = 1e-4, .weight_decay = 0.3};
  TrialConfig trial = grouped_trial();
  trial.train.changes = {{.step = 0, .values = values}};
  TrialConfig from_start = grouped_trial();
  from_start.train.learning_rate = *values.learning_rate;
  from_start.train.weight_decay = *values.weight_decay;
  expect_same_bits(train(session_of(1, kAmple), trial).trials[0],
                   train(session_of(1, kAmple), from_start).trials[0]);
}

TEST(ParameterGroups, ResumeWithTheSameBitsAndRefuseOtherGroups) {
  const Interrupted interrupted(grouped_trial());
  const TrialConfig trial = interrupted.continued(grouped_trial());
  TrialConfig other = trial;
  other.train.parameter_groups[0].learning_rate_scale = 3;
  Session session(session_of(1, kAmple));
  const std::string said = thrown<ConfigError>([&] { session.submit(other); }).what();
  EXPECT_NE(said.find("train.parameter_groups: was [{"), std::string::npos) << said;
  const RunResult resumed =
      train(session_of(2, smallest_budget(grouped_trial())), with_lanes(trial, {1, 1}));
  expect_same_bits(resumed.trials[0], groups_resident());
}

TEST(ParameterGroups, MustMatchTheModel) {
  TrialConfig trial = grouped_trial();
  trial.train.parameter_groups.push_back({.pattern = "11.*"});
  Session session(session_of(1, kAmple));
  EXPECT_STREQ(thrown<ConfigError>([&] { session.submit(trial); }).what(),
               "train.parameter_groups[4].pattern: '11.*' matches no parameter that trains; names "
               "are such as 0.weight");
}

}  // namespace
}  // namespace spillway::testing
