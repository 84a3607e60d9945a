#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/run/interrupted.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"

/// Learning rates by a function of the user's, as whole runs.
namespace spillway::testing {
namespace {

double inverse_root(std::int64_t step) { return 1 / std::sqrt(1 + static_cast<double>(step)); }

TrialConfig trial_with(const LrFunction& function) {
  TrialConfig trial = net_trial(small_nets()[3]);
  trial.train.lr_scheduler_type = LrSchedulerType::cosine;  // has no part
  trial.train.lr_function = function;
  return trial;
}

const LrFunction kInverseRoot{.name = "inverse root 1", .factor = &inverse_root};

const TrialResult& lr_function_resident() {
  static const TrialResult result =
      train(session_of(1, kAmple), trial_with(kInverseRoot)).trials[0];
  return result;
}

TEST(LrFunction, KeepsTheBitsOfAResidentRunWhenSpilledOverLanes) {
  const TrialConfig trial = trial_with(kInverseRoot);
  const Bytes budget = smallest_budget(trial);
  const RunResult spilled = train(session_of(1, budget), trial);
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_same_bits(spilled.trials[0], lr_function_resident());
  expect_same_bits(train(session_of(2, budget), with_lanes(trial, {1, 1})).trials[0],
                   lr_function_resident());
  const LrFunction other{.name = "root", .factor = [](std::int64_t step) {
                           return 1 / std::sqrt(2 + static_cast<double>(step));
                         }};
  expect_other_bits(train(session_of(1, kAmple), trial_with(other)).trials[0],
                    lr_function_resident());
}

TEST(LrFunction, HasTheBitsOfTheSameNamedSchedule) {
  const LrFunction line{.name = "line", .factor = [](std::int64_t step) {
                          return std::max(0.0, 1 - static_cast<double>(step) / 10);
                        }};
  TrialConfig named = net_trial(small_nets()[3]);
  named.train.lr_scheduler_type = LrSchedulerType::linear;
  expect_same_bits(train(session_of(1, kAmple), trial_with(line)).trials[0],
                   train(session_of(1, kAmple), named).trials[0]);
}

TEST(LrFunction, HasTheLossesOfPlainTraining) {
  const TrialConfig trial = trial_with(kInverseRoot);
  at::manual_seed(trial.train.seed);
  auto model = regression_net();
  const auto plain = plain_training(
      trial, plain_groups(trial.train, model->parameters()),
      [&](const at::Tensor& rows) {
        return at::mse_loss(model->forward(rows.narrow(1, 0, 12)), rows.narrow(1, 12, 3));
      },
      &inverse_root);
  EXPECT_LT(largest_difference(lr_function_resident().losses, plain), 1e-4);
  TrialConfig constant = net_trial(small_nets()[3]);  // the control
  const TrialResult other = train(session_of(1, kAmple), constant).trials[0];
  EXPECT_GT(largest_difference(other.losses, plain), 1e-4);
}

TEST(LrFunction, ResumesWithTheSameBitsAndRefusesAnotherName) {
  const TrialConfig trial = trial_with(kInverseRoot);
  const Interrupted interrupted(trial);
  TrialConfig other = interrupted.continued(trial);
  for (const LrFunction& function : {LrFunction{"inverse root 2", &inverse_root}, LrFunction()}) {
    other.train.lr_function = function;
    Session session(session_of(1, kAmple));
    const std::string said = thrown<ConfigError>([&] { session.submit(other); }).what();
    EXPECT_NE(said.find("train.lr_function: was inverse root 1, is " +
                        (function.name.empty() ? "not set" : function.name)),
              std::string::npos)
        << said;
  }
  const RunResult resumed = train(session_of(2, smallest_budget(trial)),
                                  with_lanes(interrupted.continued(trial), {1, 1}));
  expect_same_bits(resumed.trials[0], lr_function_resident());
}

TEST(LrFunction, EndsATrialWithAnErrorThatNamesTheStepAndTheValue) {
  for (const double bad :
       {-0.5, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto factor = [bad](std::int64_t step) { return step < 5 ? 1 : bad; };
    const TrialResult failed =
        train(session_of(1, kAmple), trial_with({.name = "broken", .factor = factor})).trials[0];
    EXPECT_EQ(failed.state, TrialState::failed);
    EXPECT_EQ(failed.steps, 5);
    const std::string value = std::isnan(bad) ? "nan" : std::isinf(bad) ? "inf" : "-0.5";
    EXPECT_NE(failed.reason.find("train.lr_function 'broken' gives " + value + " for step 5"),
              std::string::npos)
        << failed.reason;
  }
}

TEST(LrFunction, IsShownInEvents) {
  Session session(session_of(1, kAmple));
  const TrialConfig trial = trial_with(kInverseRoot);
  session.submit(trial);
  session.run();
  int steps = 0;
  for (const SessionEvent& event : session.poll(0, 0)) {
    if (event.kind != SessionEvent::Kind::step) continue;
    EXPECT_EQ(event.learning_rate, trial.train.learning_rate * inverse_root(event.step - 1));
    ++steps;
  }
  EXPECT_GT(steps, 0);
}

}  // namespace
}  // namespace spillway::testing
