#include <gtest/gtest.h>

#include <ATen/ops/empty.h>

#include <stdexcept>

#include "tests/support/training_run.h"
#include "tests/support/wrapped_model.h"

/// A trial that fails does so alone, with its reason.
namespace spillway::testing {
namespace {

constexpr std::size_t kVictim = 2;

/// Five trials on two devices that hold none of them; the one in the middle is changed.
void expect_alone(const std::function<TrialConfig(const TrialConfig&)>& change,
                  const std::string& reason) {
  std::vector<TrialConfig> trials(5, tiny_trial());
  for (std::size_t t = 0; t < trials.size(); ++t) trials[t].train.seed = 10 + t;
  const SessionConfig config = session_of(2, smallest_budget(tiny_trial()) * 5 / 4);
  const RunResult healthy = train(config, trials);
  trials[kVictim] = change(trials[kVictim]);
  const RunResult result = train(config, trials);
  EXPECT_EQ(result.trials[kVictim].state, TrialState::failed);
  EXPECT_NE(result.trials[kVictim].reason.find(reason), std::string::npos)
      << result.trials[kVictim].reason;
  EXPECT_LT(result.trials[kVictim].steps, 20);
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (t != kVictim) expect_same_bits(result.trials[t], healthy.trials[t]);
  }
  expect_within_budgets(result);
}

TEST(Failure, OfALayer) {
  expect_alone(
      [](const TrialConfig& trial) {
        return with_before(trial, [](LayerContext& context) {
          if (context.random.step == 5 && context.random.vn == 3)
            throw std::runtime_error("the layer is broken");
        });
      },
      "the layer is broken");
}

TEST(Failure, OfALossThatIsNotFinite) {
  expect_alone(
      [](TrialConfig trial) {
        trial.train.learning_rate = 9e5;
        trial.train.max_grad_norm = 0;
        return trial;
      },
      "not finite");
}

/// More activations than the pilot saw: the budget of the device is kept all the same.
TEST(Failure, OfAnOpThatTakesMoreMemoryThanPlanned) {
  expect_alone(
      [](const TrialConfig& trial) {
        return with_before(trial, [](LayerContext& context) {
          if (context.random.step == 5) at::empty({1 << 20});
        });
      },
      "device memory");
}

TEST(Failure, StoppedTrialsSaySo) {
  Session session(session_of(1, kAmple));
  TrialConfig trial = tiny_trial();
  trial.train.max_steps = 1'000'000;
  session.submit(trial);
  session.stop();
  session.run();
  EXPECT_EQ(session.result().trials[0].state, TrialState::stopped);
  EXPECT_EQ(session.result().trials[0].weights_xxh3, "");
}

}  // namespace
}  // namespace spillway::testing
