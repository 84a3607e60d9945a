#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/seeded_trial.h"
#include "tests/support/run/watched_session.h"

/// Several calls of run() in one session.
namespace spillway::testing {
namespace {

std::size_t events_of(const Session& session, JobId trial) {
  return static_cast<std::size_t>(
      std::ranges::count(session.poll(0, 0), trial, &SessionEvent::trial));
}

TEST(Rounds, TrainTrialsSubmittedSince) {
  const TemporaryFolder folder;
  TrialConfig kept = trial_of_seed(1);
  kept.checkpoint.folder = folder.path() / "1";
  Session session(session_of(2, kAmple));
  const JobId first = session.submit(kept);
  session.run();
  const std::size_t events = events_of(session, first);
  const JobId second = session.submit(trial_of_seed(2));
  session.run();
  session.run();
  const RunResult result = session.result();
  expect_same_bits(result.trials.at(first.index()), alone(1));
  expect_same_bits(result.trials.at(second.index()), alone(2));
  EXPECT_EQ(result.trials[0].losses.size(), 20u);
  EXPECT_EQ(events_of(session, first), events) << "an ended trial is left alone";
  // Its files are complete: a trial that continues from them has its history.
  kept.checkpoint.resume = true;
  expect_same_bits(train(session_of(1, kAmple), kept).trials[0], alone(1));
}

TEST(Rounds, StopOnlyTheCurrentRun) {
  WatchedSession run(session_of(1, kAmple));
  run.submit_in_lockstep(trial_of_seed(1));
  run.run([&](const SessionEvent& event) {
    if (event.kind == SessionEvent::Kind::step && event.step == 2) run.session.stop();
  });
  EXPECT_EQ(run.result.trials[0].state, TrialState::stopped);
  run.session.submit(trial_of_seed(2));
  run.session.run();
  const RunResult result = run.session.result();
  EXPECT_EQ(result.trials[0].state, TrialState::stopped);
  expect_same_bits(result.trials[1], alone(2));
}

TEST(Rounds, KeepRemovedDevicesAway) {
  WatchedSession run(session_of(2, kAmple));
  run.submit_in_lockstep(with_lanes(trial_of_seed(1), {4, 4}));
  run.run([&](const SessionEvent& event) {
    if (event.kind == SessionEvent::Kind::step && event.step == 2) run.session.remove_device(0);
  });
  expect_same_bits(run.result.trials[0], alone(1));
  run.session.submit(trial_of_seed(2));
  run.session.run();
  const RunResult result = run.session.result();
  expect_same_bits(result.trials[1], alone(2));
  EXPECT_EQ(result.devices[0].ops, 0u);
  std::size_t left = 0;
  for (const auto& event : run.session.poll(0, 0)) left += event.kind == SessionEvent::Kind::left;
  EXPECT_EQ(left, 1u);
}

TEST(Rounds, RetryARunThatCouldNotStart) {
  const TemporaryFolder folder;
  TrialConfig kept = trial_of_seed(1);
  kept.checkpoint.folder = folder.path() / "file" / "1";
  Session session(session_of(1, kAmple));
  session.submit(kept);
  std::ofstream(folder.path() / "file") << "in the way";
  EXPECT_THROW(session.run(), Error);
  EXPECT_EQ(session.result().trials[0].state, TrialState::waiting);
  std::filesystem::remove(folder.path() / "file");
  session.run();
  expect_same_bits(session.result().trials[0], alone(1));
}

}  // namespace
}  // namespace spillway::testing
