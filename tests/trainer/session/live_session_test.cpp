#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/run/live_trial.h"

/// Trials are submitted, paused, resumed, changed, cloned and stopped during a run.
/// `SPILLWAY_LIVE_SEED=7 live_session_test` replays one random run.
namespace spillway::testing {
namespace {

constexpr std::int64_t kSteps = kSeededSteps;

/// From its newest checkpoint, the trial of seed 1 ends as if it had never stopped.
void expect_whole_when_resumed(TrialConfig kept) {
  kept.until = 0;
  kept.checkpoint.resume = true;
  expect_same_training(train(session_of(1, kAmple), kept).trials[0], alone(1));
}

TEST(LiveSession, TrainsTrialsSubmittedDuringARun) {
  Session session(session_of(1, kAmple));
  session.start();
  const JobId first = session.submit(trial_of_seed(1));
  const JobId second = session.submit(trial_of_seed(2));
  EXPECT_EQ(session.wait(second), TrialState::done);
  session.wait();
  const JobId third = session.submit(trial_of_seed(3));
  session.finish();
  expect_same_bits(result_of(session, first), alone(1));
  expect_same_bits(result_of(session, second), alone(2));
  expect_same_bits(result_of(session, third), alone(3));
  expect_other_bits(result_of(session, first), alone(2));
  expect_within_budgets(session.result());
}

TEST(LiveSession, WaitsNoLongerThanTheCallerAllows) {
  Session session(session_of(1, kAmple));
  TrialConfig endless = trial_of_seed(1);
  endless.train.max_steps = 1'000'000;
  session.start();
  const JobId trial = session.submit(endless);
  EXPECT_FALSE(session.wait_for(0.001));
  EXPECT_FALSE(session.wait_for(0.001, trial));
  session.pause(trial);
  while (!session.wait_for(0.01, trial)) {
  }
  EXPECT_EQ(session.wait(trial), TrialState::paused);
  EXPECT_TRUE(session.wait_for(60));
}

TEST(LiveSession, AcceptsTrialsFromAnyThread) {
  Session session(session_of(2, kAmple));
  session.start();
  std::vector<JobId> trials(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < trials.size(); ++t) {
      threads.emplace_back([&, t] { trials[t] = session.submit(trial_of_seed(t)); });
    }
  }
  session.finish();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    expect_same_bits(result_of(session, trials[t]), alone(t));
  }
}

TEST(LiveSession, PausesAtAStepAndKeepsTheBits) {
  Session session(session_of(1, kAmple));
  const JobId trial = session.submit(trial_until(3));
  session.run();
  TrialResult result = result_of(session, trial);
  EXPECT_EQ(result.state, TrialState::paused);
  EXPECT_EQ(result.reason, "it is paused at step 3; call extend() to continue it");
  EXPECT_EQ(result.steps, 3);
  ASSERT_EQ(result.eval_losses.size(), 1u);
  EXPECT_EQ(result.eval_losses[0].first, 3);
  session.extend(trial, 10);
  EXPECT_EQ(session.wait(trial), TrialState::paused);
  result = result_of(session, trial);
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(result.eval_loss, alone(1).eval_losses[0].second) << "as at its eval_steps";
  session.extend(trial, kSteps);
  session.run();
  result = result_of(session, trial);
  expect_same_training(result, alone(1));
  EXPECT_EQ(result.eval_losses.size(), 3u) << "once at each step";
}

TEST(LiveSession, ExtendsATrialBeforeItPauses) {
  Session session(session_of(1, kAmple));
  const JobId trial = session.submit(trial_until(3));
  session.extend(trial, kSteps);
  session.run();
  expect_same_bits(result_of(session, trial), alone(1));
}

TEST(LiveSession, GivesDevicesOfAPausedTrialToOthers) {
  Session session(session_of(1, kAmple));
  const JobId first = session.submit(trial_of_seed(1)), second = session.submit(trial_of_seed(2));
  session.pause(first);
  EXPECT_EQ(result_of(session, first).state, TrialState::paused);
  EXPECT_EQ(result_of(session, first).reason, "it is paused; call resume() to continue it");
  session.run();
  EXPECT_EQ(result_of(session, first).steps, 0);
  expect_same_bits(result_of(session, second), alone(2));
  session.resume(first);
  session.run();
  expect_same_bits(result_of(session, first), alone(1));
}

TEST(LiveSession, StopsOneTrialAlone) {
  const TemporaryFolder folder;
  TrialConfig kept = trial_until(5);
  kept.checkpoint.folder = folder.path() / "1";
  {
    Session session(session_of(1, kAmple));
    session.start();
    const JobId first = session.submit(kept), second = session.submit(trial_of_seed(2));
    EXPECT_EQ(session.wait(first), TrialState::paused);
    session.stop(first);
    EXPECT_EQ(session.wait(first), TrialState::stopped);
    session.stop(first);
    session.pause(first);
    session.extend(first, kSteps);
    session.finish();
    EXPECT_EQ(result_of(session, first).steps, 5);
    expect_same_bits(result_of(session, second), alone(2));
  }
  expect_whole_when_resumed(kept);
}

TEST(LiveSession, FinishStopsWaitingTrialsAndKeepsTheirState) {
  const TemporaryFolder folder;
  TrialConfig kept = trial_until(5);
  kept.checkpoint.folder = folder.path() / "1";
  {
    Session session(session_of(1, kAmple));
    session.start();
    const JobId trial = session.submit(kept);
    session.finish();
    EXPECT_EQ(result_of(session, trial).state, TrialState::stopped);
    EXPECT_EQ(result_of(session, trial).steps, 5);
  }
  expect_whole_when_resumed(kept);
}

/// Simulates a kill: nothing is saved at the end.
TEST(LiveSession, SavesAWaitingTrial) {
  const TemporaryFolder folder;
  TrialConfig kept = trial_until(5);
  kept.checkpoint.folder = folder.path() / "1";
  Session session(session_of(1, kAmple));
  session.start();
  session.wait(session.submit(kept));
  std::uint64_t saved = 0;
  for (std::uint64_t seen = 0; saved == 0;) {
    for (const SessionEvent& event : session.poll(seen, 10)) {
      seen = event.sequence;
      if (event.kind == SessionEvent::Kind::saved) saved = event.generation;
    }
  }
  TrialConfig copy = kept;
  copy.checkpoint.folder = folder.path() / "copy";
  std::filesystem::copy(kept.checkpoint.folder, copy.checkpoint.folder,
                        std::filesystem::copy_options::recursive);
  expect_whole_when_resumed(copy);
}

TEST(LiveSession, TrainsAnEndedTrialOnWithMoreSteps) {
  const TemporaryFolder folder;
  TrialConfig whole = trial_of_seed(1);
  whole.train.lr_scheduler_type = LrSchedulerType::constant;
  whole.train.warmup_ratio = 0;
  TrialConfig kept = whole;
  kept.client_id = "1";
  kept.train.max_steps = kSteps / 2;
  kept.checkpoint = {.folder = folder.path() / "1", .resume = true};
  Session session(session_of(1, kAmple));
  session.keep_journal(folder.path());
  session.start();
  const JobId first = session.submit(kept);
  EXPECT_EQ(session.wait(first), TrialState::done);
  EXPECT_EQ(session.submit(kept), first) << "it has all steps";
  kept.train.extended_from = {std::exchange(kept.train.max_steps, kSteps)};
  const JobId second = session.submit(kept);
  EXPECT_NE(second, first);
  EXPECT_EQ(session.submit(kept), second);
  session.finish();
  EXPECT_EQ(result_of(session, first).steps, kSteps / 2);
  expect_same_training(result_of(session, second), train(session_of(1, kAmple), whole).trials[0]);
}

TEST(LiveSession, RefusesInvalidCalls) {
  Session session(session_of(1, kAmple));
  EXPECT_EQ(std::string(thrown<ConfigError>([&] { session.submit(trial_until(21)); }).what()),
            "until: is 21, must be an integer from 1 to train.max_steps, 20");
  const JobId trial = session.submit(trial_of_seed(1));
  EXPECT_THROW(session.extend(trial, 0), ConfigError);
  EXPECT_THROW(session.extend(trial, 21), ConfigError);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { session.pause(JobId(1)); }, [&] { session.resume(JobId(1)); },
           [&] { session.stop(JobId(1)); }, [&] { session.extend(JobId(1), 1); },
           [&] { session.wait(JobId(1)); }}) {
    EXPECT_EQ(std::string(thrown<Error>(call).what()), "there is no trial 1; the session has 1");
  }
}

/// Without host memory for a second home, one trial waits for the other, which waits for the user.
TEST(LiveSession, ReturnsFromRunIfNoTrialCanContinue) {
  SessionConfig config = session_of(1, kAmple);
  {
    Session planned(config);
    const Bytes home = planned.plan(planned.submit(trial_of_seed(1))).home_bytes;
    config.host_memory = home + home / 2;
  }
  Session session(config);
  const JobId first = session.submit(trial_until(3));
  const JobId second = session.submit(trial_of_seed(2));
  session.run();
  EXPECT_EQ(result_of(session, first).state, TrialState::paused);
  EXPECT_EQ(result_of(session, second).state, TrialState::waiting);
  session.extend(first, kSteps);
  session.run();
  expect_same_training(result_of(session, first), alone(1));
  expect_same_bits(result_of(session, second), alone(2));
}

/// Trials get host memory in order of submission, paused ones included.
TEST(LiveSession, ReturnsFromRunIfAPausedTrialIsNextForHostMemory) {
  GptConfig deeper = tiny_gpt();
  deeper.num_hidden_layers *= 4;
  SessionConfig config = session_of(1, kAmple);
  {
    Session planned(config);
    config.host_memory = planned.plan(planned.submit(tiny_trial("large", deeper))).home_bytes;
    EXPECT_GE(config.host_memory, 2 * planned.plan(planned.submit(trial_of_seed(1))).home_bytes);
  }
  Session session(config);
  const JobId first = session.submit(trial_until(3));
  const JobId large = session.submit(tiny_trial("large", deeper));
  const JobId second = session.submit(trial_of_seed(2));
  session.pause(large);
  session.run();
  EXPECT_EQ(result_of(session, first).state, TrialState::paused);
  EXPECT_EQ(result_of(session, large).state, TrialState::paused);
  EXPECT_EQ(result_of(session, second).state, TrialState::waiting);
  session.stop(large);
  session.run();
  expect_same_bits(result_of(session, second), alone(2));
}

/// Calls at random instants, from several threads. Every other run has a journal, and checkpoints
/// after each step.
class RandomCalls {
 public:
  explicit RandomCalls(std::uint64_t seed)
      : random_(seed), is_durable_(seed % 2 == 0), session_(config()) {
    if (is_durable_) session_.keep_journal(folder_.path());
    const std::size_t num_trials = 2 + random_() % 3;
    session_.start();
    driven_.resize(num_trials);
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < num_trials; ++t) {
      threads.emplace_back([this, t, seed = random_()] { drive(t, seed); });
    }
  }

  /// Resumes the trials that still wait.
  void expect_good_end() {
    for (const Driven& driven : driven_) {
      session_.resume(driven.trial.id);
      session_.extend(driven.trial.id, kSteps);
    }
    session_.finish();
    for (std::size_t t = 0; t < driven_.size(); ++t) {
      expect_good(driven_[t].trial, t);
      for (const Trial& clone : driven_[t].clones) expect_good(clone, t);
      num_clones += static_cast<int>(driven_[t].clones.size());
    }
    expect_within_budgets(session_.result());
  }

  int num_stopped = 0, num_changed = 0, num_clones = 0;
  std::atomic<int> num_calls = 0;

 private:
  struct Trial {
    JobId id;
    std::vector<TrainChange> changes;  ///< with which it ends, if it starts with them
  };
  /// One thread calls for these.
  struct Driven {
    Trial trial;
    std::vector<Trial> clones;
  };

  SessionConfig config() {
    SessionConfig config = session_of(1 + static_cast<int>(random_() % 2), kAmple);
    constexpr SharingKind kKinds[] = {SharingKind::none, SharingKind::wfs, SharingKind::priority};
    config.sharing = kKinds[random_() % std::size(kKinds)];
    return config;
  }

  void expect_good(const Trial& trial, std::uint64_t seed) {
    const TrialResult result = result_of(session_, trial.id);
    if (result.state == TrialState::stopped) {
      ++num_stopped;
    } else if (trial.changes.empty()) {
      expect_same_training(result, alone(seed));
    } else {
      ++num_changed;
      expect_same_training(result, changed_alone(trial.changes, seed));
    }
  }

  /// The events of one kind about a trial, in their order.
  std::vector<SessionEvent> events_of(JobId trial, SessionEvent::Kind kind) const {
    auto events = session_.poll(0, 0);
    std::erase_if(events, [&](const auto& e) { return e.trial != trial || e.kind != kind; });
    return events;
  }

  static TrainValues draw_values(std::mt19937_64& random) {
    return {.learning_rate = 1e-4 * static_cast<double>(1 + random() % 50)};
  }

  void set(Trial& trial, const TrainValues& values) {
    try {
      const std::int64_t step = session_.set(trial.id, values);
      EXPECT_EQ(events_of(trial.id, SessionEvent::Kind::set).back().step, step);
      trial.changes.push_back({step, values});
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.field, "trial") << error.what();  // it has ended
    }
  }

  void clone(Driven& driven, const std::string& client_id, const TrainValues& values) {
    Trial clone{session_.clone(driven.trial.id, {.client_id = client_id,
                                                 .values = values,
                                                 .checkpoint_folder = folder_.path() / client_id}),
                driven.trial.changes};
    const auto begun = events_of(clone.id, SessionEvent::Kind::resumed);
    clone.changes.push_back({begun.empty() ? 0 : begun[0].step, values});
    driven.clones.push_back(std::move(clone));
  }

  void drive(std::size_t t, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto rest = [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    };
    rest();
    const auto until = static_cast<std::int64_t>(random() % kSteps);
    TrialConfig submitted = trial_until(until, t);
    if (is_durable_) {
      submitted.client_id = std::to_string(t);
      submitted.checkpoint = {.folder = folder_.path() / submitted.client_id, .every_steps = 1};
    }
    Driven& driven = driven_[t];
    const JobId trial = driven.trial.id = session_.submit(submitted);
    ++num_calls;
    for (std::uint64_t calls = random() % 10; calls > 0; --calls) {
      rest();
      ++num_calls;
      switch (random() % 11) {
        case 0:
        case 1:
          session_.pause(trial);
          break;
        case 2:
        case 3:
          session_.resume(trial);
          break;
        case 4:
        case 5:
          session_.extend(trial, 1 + static_cast<std::int64_t>(random() % kSteps));
          break;
        case 6:
          session_.wait(trial);
          break;
        case 7:
          if (random() % 4 == 0) session_.stop(trial);
          break;
        case 8:
          set(driven.trial, draw_values(random));
          break;
        case 9:
          if (!driven.clones.empty()) set(driven.clones.back(), draw_values(random));
          break;
        case 10:
          if (!is_durable_) break;
          clone(driven, std::to_string(t) + "." + std::to_string(calls), draw_values(random));
          break;
      }
    }
  }

  TemporaryFolder folder_;
  std::mt19937_64 random_;
  const bool is_durable_;
  Session session_;
  std::vector<Driven> driven_;
};

TEST(LiveSession, KeepsTheBitsOverCallsAtRandomInstants) {
  const std::uint64_t only = from_environment("SPILLWAY_LIVE_SEED", 0);
  const std::uint64_t last = only ? only : campaign_size(10);
  int stopped = 0, changed = 0, clones = 0, runs = 0, calls = 0;
  for (std::uint64_t seed = only ? only : 1; seed <= last; ++seed) {
    SCOPED_TRACE("SPILLWAY_LIVE_SEED=" + std::to_string(seed));
    RandomCalls run(seed);
    run.expect_good_end();
    stopped += run.num_stopped;
    changed += run.num_changed;
    clones += run.num_clones;
    calls += run.num_calls;
    ++runs;
    if (HasFailure()) return;
  }
  std::cout << runs << " runs, " << calls << " calls\n";
  EXPECT_TRUE(only || (stopped > 0 && changed > 0 && clones > 0));
}

}  // namespace
}  // namespace spillway::testing
