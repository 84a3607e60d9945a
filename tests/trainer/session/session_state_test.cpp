#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "core/base/config_check.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"

/// What a session reports about itself before, during and after a run.
namespace spillway::testing {
namespace {

const TraceSpan* running_op(const SessionState& state, JobId trial) {
  const auto found = std::ranges::find_if(state.under_way, [&](const TraceSpan& span) {
    return span.job == trial && span.track == TraceSpan::Track::compute;
  });
  return found == state.under_way.end() ? nullptr : &*found;
}

TEST(SessionEvents, KeepOnlyTheLast) {
  SessionConfig config = session_of(1, kAmple);
  config.max_events = 10;
  Session session(config);
  session.submit(tiny_trial());
  session.run();
  const auto last = session.poll(0, 0);
  ASSERT_EQ(last.size(), 10u);
  EXPECT_GT(last.front().sequence, 10u) << "the gap shows";
}

TEST(SessionEvents, KeepAtLeastOne) {
  SessionConfig config = session_of(1, kAmple);
  config.max_events = 0;
  config.max_history = 0;
  const auto errors = thrown<ConfigErrors>([&] { Session session(config); });
  ASSERT_EQ(errors.all.size(), 2u);
  EXPECT_EQ(errors.all[0].field, "max_events");
  EXPECT_EQ(errors.all[1].field, "max_history");
}

TEST(SessionState, ListsRunningAndWaitingWork) {
  constexpr std::int64_t kStep = 3;
  Lockstep lockstep;
  lockstep.allow(kStep - 1);
  SessionConfig config = session_of(1, kAmple);
  config.policy = PolicyKind::fifo;
  Session session(config);
  const JobId first = session.submit(with_before(tiny_trial("first"), [&](LayerContext& context) {
    if (context.training) lockstep.wait_for(context.random.step);
  }));
  session.submit(tiny_trial("second"));
  auto running = std::async(std::launch::async, [&] { session.run(); });
  SessionState state;
  const TraceSpan* op = nullptr;  // the one that is held up
  while (op == nullptr || op->step != kStep || state.trials[1].waits_for != "a device") {
    session.poll(0, 0.01);
    state = session.state();
    op = running_op(state, first);
  }
  EXPECT_EQ(op->device, DeviceId(0));
  EXPECT_TRUE(op->name.starts_with("backward 0-")) << op->name;
  EXPECT_GT(op->started_s, 0);
  EXPECT_LE(op->started_s, state.time_s);
  EXPECT_GT(session.state().time_s, state.time_s);
  ASSERT_EQ(state.devices.size(), 1u);
  EXPECT_EQ(state.devices[0].kind, "cpu");
  EXPECT_EQ(state.devices[0].state, "present");
  EXPECT_EQ(state.devices[0].budget_bytes, kAmple);
  EXPECT_GT(state.devices[0].used_bytes, 0u);
  EXPECT_LE(state.devices[0].used_bytes, kAmple);
  EXPECT_GT(state.host_used_bytes, 0u);
  const SessionState::Trial& held_up = state.trials[0];
  EXPECT_EQ(held_up.name, "first");
  EXPECT_EQ(held_up.state, TrialState::running);
  EXPECT_EQ(held_up.step, kStep);
  EXPECT_EQ(held_up.max_steps, 20);
  EXPECT_EQ(held_up.lanes, std::vector{0});
  EXPECT_EQ(held_up.waits_for, "");
  lockstep.allow(20);
  running.get();
}

TEST(SessionState, IsEmptyBeforeAndAfterARun) {
  Session session(session_of(2, kAmple));
  session.submit(tiny_trial());
  const SessionState before = session.state();
  EXPECT_EQ(before.devices.size(), 2u);
  EXPECT_EQ(before.trials[0].state, TrialState::waiting);
  EXPECT_TRUE(before.under_way.empty());
  session.run();
  const SessionState after = session.state();
  EXPECT_EQ(after.trials[0].state, TrialState::done);
  EXPECT_EQ(after.trials[0].step, 20);
  EXPECT_EQ(after.devices[1].used_bytes, 0u);
  EXPECT_EQ(after.host_used_bytes, 0u);
  EXPECT_TRUE(after.under_way.empty());
  EXPECT_GT(after.time_s, 0);
}

TEST(SessionState, IgnoresARunThatCannotStart) {
  const TemporaryFolder folder;
  TrialConfig trial = tiny_trial();
  trial.checkpoint.folder = folder.write("file", "no folder") + "/checkpoints";
  Session session(session_of(1, kAmple));
  session.submit(trial);
  EXPECT_ANY_THROW(session.run());
  EXPECT_TRUE(session.state().under_way.empty());
}

TEST(SessionState, CanBePolledWithoutChangingABit) {
  const SessionConfig config = session_of(2, smallest_budget(tiny_trial()) * 5 / 4);
  const std::vector<TrialConfig> trials(3, tiny_trial());
  Session session(config);
  for (const TrialConfig& trial : trials) session.submit(trial);
  auto running = std::async(std::launch::async, [&] { session.run(); });
  int seen = 0;
  while (running.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    seen += session.state().under_way.empty() ? 0 : 1;
  }
  running.get();
  EXPECT_GT(seen, 0);
  const RunResult quiet = train(config, trials), asked = session.result();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    expect_same_bits(quiet.trials[t], asked.trials[t]);
  }
  expect_within_budgets(asked);
}

}  // namespace
}  // namespace spillway::testing
