#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/live_trial.h"

/// Session::clone() begins a trial with the state of another one.
namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

CloneChanges changes_in(const fs::path& folder, const TrainValues& values = {}) {
  return {.client_id = folder.filename(), .values = values, .checkpoint_folder = folder};
}

struct Pair {
  TrialResult source, clone;
};

/// Clones a trial that waits at kStep, and trains both.
Pair cloned(const TrainValues& values, const SessionConfig& config,
            const TrialConfig& like = trial_of_seed(1)) {
  const TemporaryFolder folder;
  TrialConfig trial = like;
  trial.until = kStep;
  trial.checkpoint = {.folder = folder.path() / "source"};
  Session session(config);
  session.start();
  const JobId source = session.submit(trial);
  session.wait(source);
  const JobId clone = session.clone(source, changes_in(folder.path() / "clone", values));
  session.extend(source, kSeededSteps);
  session.finish();
  expect_within_budgets(session.result());
  return {result_of(session, source), result_of(session, clone)};
}

TEST(SessionClone, EndsLikeItsSourceUnlessValuesChange) {
  const TrialResult changed = changed_alone({{kStep, kSlower}});
  expect_other_bits(changed, alone(1));
  const TrialConfig lanes = with_lanes(trial_of_seed(1), {4, 4});
  const auto expect_right = [&](const SessionConfig& config, const TrialConfig& trial) {
    const Pair same = cloned({}, config, trial), other = cloned(kSlower, config, trial);
    expect_same_training(same.source, alone(1));
    expect_same_training(same.clone, alone(1));
    expect_same_training(other.source, alone(1));
    expect_same_training(other.clone, changed);
  };
  expect_right(session_of(1, kAmple), trial_of_seed(1));
  expect_right(session_of(1, smallest_budget(trial_of_seed(1))), trial_of_seed(1));
  expect_right(session_of(2, kAmple), lanes);
}

TEST(SessionClone, TellsUsersWhereItBegins) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  const JobId source = session.submit(kept_until(kStep, folder.path() / "source"));
  session.run();
  const JobId clone = session.clone(source, changes_in(folder.path() / "clone", kSlower));
  const SessionEvent event = event_of(session, SessionEvent::Kind::resumed);
  EXPECT_EQ(event.trial, clone);
  EXPECT_EQ(event.step, kStep);
  EXPECT_EQ(event.reason, "clone of 'seed 1'");
  EXPECT_EQ(result_of(session, clone).name, "clone");
  EXPECT_EQ(session.clone(source, changes_in(folder.path() / "clone", kSlower)), clone);
}

/// The instant is unknown, so the step comes from the event.
TEST(SessionClone, ClonesATrialThatTrains) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  session.start();
  TrialConfig trial = kept_until(0, folder.path() / "source");
  trial.checkpoint.every_steps = 0;
  const JobId source = session.submit(trial);
  event_of(session, SessionEvent::Kind::step);
  const JobId clone = session.clone(source, changes_in(folder.path() / "clone", kSlower));
  const std::int64_t step = event_of(session, SessionEvent::Kind::resumed).step;
  EXPECT_GE(step, 1);
  session.finish();
  expect_same_training(result_of(session, source), alone(1));
  expect_same_training(result_of(session, clone), changed_alone({{step, kSlower}}));
}

TEST(SessionClone, ClonesATrialThatHasNotBegun) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  const JobId source = session.submit(kept_until(0, folder.path() / "source"));
  const JobId clone = session.clone(source, changes_in(folder.path() / "clone", kSlower));
  session.run();
  expect_same_bits(result_of(session, source), alone(1));
  expect_same_bits(result_of(session, clone), changed_alone({{0, kSlower}}));
}

TEST(SessionClone, TrainsAnEndedTrialFurther) {
  const TemporaryFolder folder;
  TrialConfig trial = kept_until(0, folder.path() / "source");
  trial.train.lr_scheduler_extend = LrExtension::restart;
  Session session(session_of(1, kAmple));
  const JobId source = session.submit(trial);
  session.run();
  CloneChanges changes = changes_in(folder.path() / "clone");
  changes.max_steps = kSeededSteps + 10;
  const JobId clone = session.clone(source, changes);
  session.run();
  TrialConfig longer = trial_of_seed(1);
  longer.train.lr_scheduler_extend = LrExtension::restart;
  longer.train.max_steps = changes.max_steps;
  longer.train.extended_from = {kSeededSteps};
  expect_same_bits(result_of(session, source), alone(1));
  expect_same_training(result_of(session, clone), train(session_of(1, kAmple), longer).trials[0]);
}

TEST(SessionClone, KeepsChangesOfItsSource) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  const JobId source = session.submit(kept_until(3, folder.path() / "source"));
  session.run();
  session.set(source, {.learning_rate = 2e-3});
  const JobId at_rest = session.clone(source, changes_in(folder.path() / "at rest"));
  session.extend(source, kStep);
  session.run();
  const JobId clone = session.clone(source, changes_in(folder.path() / "clone", kSlower));
  session.stop(source);
  const JobId of_stopped = session.clone(source, changes_in(folder.path() / "of stopped"));
  const JobId of_clone = session.clone(clone, changes_in(folder.path() / "of clone"));
  session.finish();
  const TrainChange first{3, {.learning_rate = 2e-3}};
  expect_same_training(result_of(session, at_rest), changed_alone({first}));
  expect_same_training(result_of(session, of_stopped), changed_alone({first}));
  expect_same_training(result_of(session, clone), changed_alone({first, {kStep, kSlower}}));
  expect_same_training(result_of(session, of_clone), changed_alone({first, {kStep, kSlower}}));
}

/// A run with a clone that waits, as a kill would leave it.
void make_run(const fs::path& run, const fs::path& copy) {
  fs::create_directory(run);
  Session session(session_of(1, kAmple));
  session.keep_journal(run);
  const JobId source = session.submit(kept_until(kStep, run / "source"));
  session.run();
  CloneChanges changes = changes_in(run / "clone", kSlower);
  changes.until = kStep;
  session.clone(source, changes);
  session.run();
  copy_run(session, kStep, run, copy);
}

TEST(SessionClone, ResumesAfterAKill) {
  const TemporaryFolder folder;
  make_run(folder.path() / "run", folder.path() / "submitted");
  fs::copy(folder.path() / "submitted", folder.path() / "cloned", fs::copy_options::recursive);
  for (const bool submits : {true, false}) {
    const fs::path run = folder.path() / (submits ? "submitted" : "cloned");
    Session session(session_of(1, kAmple));
    session.keep_journal(run);
    const JobId source = session.submit(kept_until(0, run / "source"));
    const JobId clone = submits ? session.submit(kept_until(0, run / "clone"))
                                : session.clone(source, changes_in(run / "clone", kSlower));
    session.run();
    expect_same_training(result_of(session, source), alone(1));
    expect_same_training(result_of(session, clone), changed_alone({{kStep, kSlower}}));
  }
}

TEST(SessionClone, WaitsForHostMemory) {
  const TemporaryFolder folder;
  SessionConfig config = session_of(1, kAmple);
  {
    Session planned(config);
    const Bytes home = planned.plan(planned.submit(trial_of_seed(1))).home_bytes;
    config.host_memory = home + home / 2;
  }
  Session session(config);
  const JobId source = session.submit(kept_until(kStep, folder.path() / "source"));
  session.run();
  const JobId clone = session.clone(source, changes_in(folder.path() / "clone", kSlower));
  session.run();
  EXPECT_EQ(result_of(session, clone).state, TrialState::waiting);
  session.stop(source);
  session.run();
  expect_same_training(result_of(session, clone), changed_alone({{kStep, kSlower}}));
  expect_within_budgets(session.result());
}

TEST(SessionClone, RefusesInvalidCalls) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  const JobId bare = session.submit(trial_of_seed(1));
  const JobId source = session.submit(kept_until(0, folder.path() / "source"));
  const auto refusal = [&](JobId id, const CloneChanges& changes) {
    return std::string(thrown<ConfigError>([&] { session.clone(id, changes); }).what());
  };
  const CloneChanges clone = changes_in(folder.path() / "clone");
  EXPECT_EQ(refusal(bare, clone),
            "checkpoint.folder: of 'seed 1' is empty, and a clone begins from a checkpoint; give "
            "'seed 1' a folder when you submit it");
  EXPECT_EQ(refusal(source, {.client_id = "clone"}),
            "checkpoint.folder: is empty; a clone needs one of its own");
  EXPECT_EQ(refusal(source, changes_in(folder.path() / "source")),
            "checkpoint.folder: is that of 'seed 1', '" + (folder.path() / "source").string() +
                "'; a clone needs one of its own");
  CloneChanges shorter = clone, longer = clone, worse = clone;
  shorter.max_steps = 10;
  EXPECT_EQ(refusal(source, shorter),
            "max_steps: is 10, below the 20 of the source, on which its learning rates depend; use "
            "until");
  longer.max_steps = 30;
  EXPECT_NE(refusal(source, longer).find("train.lr_scheduler_extend: is none"), std::string::npos);
  worse.values.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal(source, worse),
            "set.learning_rate: is nan, must be a number of at least 0 and below 1000000");
  EXPECT_EQ(std::string(thrown<Error>([&] { session.clone(JobId(2), clone); }).what()),
            "there is no trial 2; the session has 2");
  EXPECT_FALSE(fs::exists(folder.path() / "clone"));
}

}  // namespace
}  // namespace spillway::testing
