#pragma once

#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/training_run.h"

namespace spillway::testing {

/// A trial that has waited at a step, with a checkpoint, when its session ended.
class Interrupted {
 public:
  static constexpr std::int64_t kStep = 7;

  explicit Interrupted(const TrialConfig& trial) {
    TrialConfig begun = continued(trial);
    begun.until = kStep;
    const TrialResult result = train(session_of(1, kAmple), begun).trials[0];
    EXPECT_EQ(result.state, TrialState::paused) << result.reason;
    EXPECT_EQ(result.steps, kStep);
  }

  /// A trial that goes on from there.
  TrialConfig continued(TrialConfig trial) const {
    trial.checkpoint = {.folder = folder_ / "checkpoints", .every_steps = kStep, .resume = true};
    return trial;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace spillway::testing
