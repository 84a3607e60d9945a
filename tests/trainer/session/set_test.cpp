#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/os/file_system.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/live_trial.h"
#include "trainer/checkpoint/checkpoint_store.h"

/// Session::set() changes values of a trial that trains.
namespace spillway::testing {
namespace {

/// The result of a trial that is changed while it waits at a step.
TrialResult changed_at(std::int64_t step, const TrainValues& values, const SessionConfig& config,
                       TrialConfig trial = trial_of_seed(1)) {
  trial.until = step;
  Session session(config);
  session.start();
  const JobId id = session.submit(trial);
  session.wait(id);
  EXPECT_EQ(session.set(id, values), step);
  session.extend(id, kSeededSteps);
  session.finish();
  expect_within_budgets(session.result());
  return result_of(session, id);
}

TEST(SessionSet, GivesTheBitsOfAChangeFromTheStart) {
  const TrialResult expected = changed_alone({{kStep, kSlower}});
  const SessionConfig ample = session_of(1, kAmple);
  expect_same_training(changed_at(kStep, kSlower, ample), expected);
  const Bytes least = smallest_budget(trial_of_seed(1));
  expect_same_training(changed_at(kStep, kSlower, session_of(1, least)), expected);
  const TrialConfig lanes = with_lanes(trial_of_seed(1), {4, 4});
  expect_same_training(changed_at(kStep, kSlower, session_of(2, kAmple), lanes), expected);
  expect_other_bits(changed_at(kStep + 1, kSlower, ample), expected);
  expect_other_bits(changed_at(kStep, {.learning_rate = 2e-4}, ample), expected);
  expect_other_bits(alone(1), expected);
}

TEST(SessionSet, ChangesEachValue) {
  for (const TrainValues& values :
       {TrainValues{.weight_decay = 0.5}, TrainValues{.max_grad_norm = 0.01},
        TrainValues{.learning_rate = 1e-4, .weight_decay = 0.5, .max_grad_norm = 0.01}}) {
    const TrialResult changed = changed_at(kStep, values, session_of(1, kAmple));
    expect_same_training(changed, changed_alone({{kStep, values}}));
    expect_other_bits(changed, alone(1));
  }
}

TEST(SessionSet, TellsUsersTheStepAndTheRate) {
  Session session(session_of(1, kAmple));
  TrialConfig trial = trial_until(kStep);
  trial.train.lr_scheduler_type = LrSchedulerType::constant;
  trial.train.warmup_ratio = 0;
  const JobId id = session.submit(trial);
  session.run();
  session.set(id, {.learning_rate = 0.25, .weight_decay = 0});
  const SessionEvent event = event_of(session, SessionEvent::Kind::set);
  EXPECT_EQ(event.trial, id);
  EXPECT_EQ(event.step, kStep);
  EXPECT_EQ(event.learning_rate, 0.25);
  EXPECT_EQ(event.reason, "learning_rate 0.25, weight_decay 0");
  session.extend(id, kSeededSteps);
  session.run();
  for (const SessionEvent& step : session.poll(0, 0)) {
    if (step.kind != SessionEvent::Kind::step) continue;
    EXPECT_EQ(step.learning_rate, step.step <= kStep ? trial.train.learning_rate : 0.25);
  }
}

TEST(SessionSet, KeepsTheLastOfTwoChangesOfAStep) {
  Session session(session_of(1, kAmple));
  const JobId id = session.submit(trial_until(kStep));
  session.set(id, {.learning_rate = 0.25});
  session.set(id, kSlower);
  session.run();
  session.extend(id, kSeededSteps);
  session.run();
  expect_same_training(result_of(session, id), changed_alone({{0, kSlower}}));
}

/// Runs a copy of the folder to its end, as after a kill.
TrialResult resumed(const std::filesystem::path& run, TrialConfig trial) {
  trial.until = 0;
  trial.checkpoint.folder = run / trial.client_id;
  Session session(session_of(1, kAmple));
  session.keep_journal(run);
  session.submit(trial);
  session.run();
  return session.result().trials[0];
}

/// A run whose trial was changed at kStep and, as far as checkpoints know, then went on to `until`.
void make_run(const std::filesystem::path& run, const std::filesystem::path& copy,
              std::int64_t until) {
  std::filesystem::create_directory(run);
  Session session(session_of(1, kAmple));
  session.keep_journal(run);
  const JobId id = session.submit(kept_until(kStep, run / "a"));
  session.run();
  session.set(id, kSlower);
  session.extend(id, until);
  session.run();
  copy_run(session, until, run, copy);
}

void remove_newest(const std::filesystem::path& folder) {
  const auto newest = generations_in(posix_file_system(), folder).back();
  std::filesystem::remove_all(generation_path(folder, newest));
}

TEST(SessionSet, RepeatsAChangeAfterAKill) {
  const TemporaryFolder folder;
  const TrialConfig trial = kept_until(0, folder.path() / "a");
  const TrialResult expected = changed_alone({{kStep, kSlower}});
  make_run(folder.path() / "early", folder.path() / "early copy", kStep);
  remove_newest(folder.path() / "early copy" / "a");  // the older one was written before the change
  expect_same_training(resumed(folder.path() / "early copy", trial), expected);
  make_run(folder.path() / "late", folder.path() / "late copy", kStep + 3);
  expect_same_training(resumed(folder.path() / "late copy", trial), expected);
}

TEST(SessionSet, RepeatsAChangeThatOnlyACheckpointKnows) {
  const TemporaryFolder folder;
  make_run(folder.path() / "run", folder.path() / "copy", kStep + 3);
  TrialConfig trial = kept_until(0, folder.path() / "copy" / "a");
  trial.checkpoint.resume = true;
  const TrialResult result = train(session_of(1, kAmple), trial).trials[0];
  expect_same_training(result, changed_alone({{kStep, kSlower}}));
}

TEST(SessionSet, KeepsAChangeOverManySessions) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  std::filesystem::create_directory(run);
  const TrialConfig trial = kept_until(kStep, run / "a");
  for (std::int64_t until = kStep; until < kSeededSteps; until += 4) {
    Session session(session_of(1, kAmple));
    session.keep_journal(run);
    const JobId id = session.submit(trial);
    session.extend(id, until);
    session.run();
    if (until == kStep) session.set(id, kSlower);
    EXPECT_EQ(session.submit(trial), id) << "it is the same trial as before the change";
    session.finish();
  }
  expect_same_training(resumed(run, trial), changed_alone({{kStep, kSlower}}));
}

TEST(SessionSet, RefusesOtherChangesOfStepsThatAreCommitted) {
  const TemporaryFolder folder;
  make_run(folder.path() / "run", folder.path() / "copy", kStep + 3);
  TrialConfig trial = kept_until(0, folder.path() / "copy" / "a");
  trial.checkpoint.resume = true;
  for (const std::vector<TrainChange>& changes :
       {std::vector<TrainChange>{{kStep - 1, kSlower}},
        std::vector<TrainChange>{{kStep, kSlower}, {kStep + 1, kSlower}}}) {
    trial.train.changes = changes;
    const std::string text =
        thrown<ConfigError>([&] { train(session_of(1, kAmple), trial); }).what();
    EXPECT_NE(text.find("train.changes: was "), std::string::npos) << text;
  }
  trial.train.changes = {{kStep, kSlower}, {kStep + 3, {.learning_rate = 1e-5}}};
  expect_same_training(train(session_of(1, kAmple), trial).trials[0],
                       changed_alone(trial.train.changes));
}

TEST(SessionSet, RefusesInvalidCalls) {
  Session session(session_of(1, kAmple));
  const JobId id = session.submit(trial_of_seed(1));
  const auto refusal = [&](const TrainValues& values) {
    return std::string(thrown<ConfigError>([&] { session.set(id, values); }).what());
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal({.learning_rate = kNan}),
            "set.learning_rate: is nan, must be a number of at least 0 and below 1000000");
  EXPECT_EQ(refusal({.weight_decay = -1}),
            "set.weight_decay: is -1, must be a number of at least 0 and below 1000000");
  EXPECT_EQ(refusal({.max_grad_norm = kNan}),
            "set.max_grad_norm: is nan, must be a number of at least 0 and below 1e+30");
  EXPECT_EQ(refusal({}), "set: is empty; give learning_rate, weight_decay or max_grad_norm");
  EXPECT_EQ(std::string(thrown<Error>([&] { session.set(JobId(1), kSlower); }).what()),
            "there is no trial 1; the session has 1");
  session.run();
  EXPECT_EQ(refusal(kSlower),
            "trial: 'seed 1' has ended: done; its values cannot change, clone it instead");
  expect_same_bits(result_of(session, id), alone(1));
  TrialConfig invalid = trial_of_seed(2);
  const auto submission = [&] { return thrown<ConfigError>([&] { session.submit(invalid); }); };
  invalid.train.changes = {{-1, kSlower}};
  EXPECT_EQ(submission().field, "train.changes[0].step");
  invalid.train.changes = {{1, kSlower}, {2, {.learning_rate = kNan}}};
  EXPECT_EQ(submission().field, "train.changes[1].learning_rate");
}

}  // namespace
}  // namespace spillway::testing
