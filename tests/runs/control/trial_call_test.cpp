#include "runs/control/trial_call.h"

#include <gtest/gtest.h>

#include "runs/log/event_json.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/run/made_up_run.h"

namespace spillway::testing {
namespace {

/// Its trial 1 ends like this.
RunLog run_with(TrialState state) {
  RunLog run;
  run.apply(made_up_run_event(2));
  SessionEvent end{.sequence = 1, .trial = JobId(1), .kind = SessionEvent::Kind::state};
  end.state = state;
  run.apply(to_json(end));
  return run;
}

std::string refusal(TrialCall call, const RunLog& run, std::optional<std::int64_t> steps = {}) {
  return thrown<ConfigError>([&] { event_of({call, "t1", steps}, run); }).what();
}

TEST(CallsForATrial, ExtendOneThatIsDone) {
  const RunLog run = run_with(TrialState::done);
  EXPECT_EQ(event_of({TrialCall::extend, "t1", 30}, run)["max_steps"], 30);
  EXPECT_NE(refusal(TrialCall::extend, run).find("give a larger number of steps"),
            std::string::npos);
}

TEST(CallsForATrial, DoNotExtendOneThatFailed) {
  EXPECT_NE(refusal(TrialCall::extend, run_with(TrialState::failed), 30).find("--retry-failed"),
            std::string::npos);
}

TEST(CallsForATrial, StopNoneThatHasEnded) {
  for (const TrialState state : {TrialState::done, TrialState::failed}) {
    EXPECT_NE(refusal(TrialCall::stop, run_with(state)).find("has ended"), std::string::npos);
  }
  EXPECT_EQ(event_of({TrialCall::stop, "t0"}, run_with(TrialState::done))["call"], "stop");
}

}  // namespace
}  // namespace spillway::testing
