#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/run/training_run.h"

/// Losses alone decide which trials of a sweep continue: not devices, order or interruptions.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

constexpr EarlyTerminate kEarly{.min_iter = 3, .eta = 2};  // rungs 3, 6, 12

/// 5, 2 and 1 of them reach the rungs.
std::vector<TrialConfig> sweep() {
  std::vector<TrialConfig> trials;
  for (const double learning_rate : {1e-5, 3e-3, 1e-4, 1e-2, 1e-3}) {
    TrialConfig trial = tiny_trial("trial " + std::to_string(trials.size()));
    trial.client_id = trial.name;
    trial.train.learning_rate = learning_rate;
    trials.push_back(std::move(trial));
  }
  return trials;
}

SessionConfig with_rungs(SessionConfig config, EarlyTerminate early = kEarly) {
  config.early_terminate = early;
  return config;
}

/// The results that must be equal, bit by bit.
using Outcome = std::tuple<std::string, TrialState, std::int64_t, std::string, std::vector<double>,
                           std::vector<std::pair<std::int64_t, double>>, std::string>;

std::vector<Outcome> outcomes(const RunResult& result) {
  std::vector<Outcome> all;
  for (const TrialResult& trial : result.trials) {
    const bool early = trial.state == TrialState::stopped_early;
    all.emplace_back(trial.name, trial.state, trial.steps, trial.weights_xxh3, trial.losses,
                     trial.rung_losses, early ? trial.reason : "");
  }
  return all;
}

std::vector<std::int64_t> steps_of(const RunResult& result) {
  std::vector<std::int64_t> steps;
  for (const TrialResult& trial : result.trials) steps.push_back(trial.steps);
  return steps;
}

const RunResult& on_one_device() {
  static const RunResult result = train(with_rungs(session_of(1, kAmple)), sweep());
  return result;
}

TEST(EarlyStopping, HalvesAtRungsAndKeepsTheBitsOfTheBest) {
  const RunResult& result = on_one_device();
  auto steps = steps_of(result);
  std::ranges::sort(steps);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 3, 3, 6, 20}));
  for (const TrialResult& trial : result.trials) {
    EXPECT_EQ(trial.state, trial.steps == 20 ? TrialState::done : TrialState::stopped_early);
    EXPECT_EQ(trial.reason.empty(), trial.steps == 20);
    EXPECT_EQ(trial.rung_losses.size(), trial.steps == 20 ? 3u : trial.steps == 6 ? 2u : 1u);
    EXPECT_EQ(trial.weights_xxh3.size(), 32u) << "of the weights that it has at its rung";
    ASSERT_FALSE(trial.eval_losses.empty());
    EXPECT_EQ(trial.eval_losses.back().first, trial.steps);
    EXPECT_EQ(trial.rung_losses[0].first, 3);
    EXPECT_EQ(trial.rung_losses[0].second,
              (trial.losses[0] + trial.losses[1] + trial.losses[2]) / 3);
  }
  const auto best = std::ranges::find(result.trials, TrialState::done, &TrialResult::state);
  const auto index = static_cast<std::size_t>(best - result.trials.begin());
  expect_same_bits(*best, train(session_of(1, kAmple), sweep()[index]).trials[0]);
  const auto last = std::ranges::max_element(
      result.trials, {}, [](const TrialResult& trial) { return trial.rung_losses[0].second; });
  EXPECT_EQ(last->reason.find("at step 3 it was number 5 of 5 with a mean loss of "), 0u)
      << last->reason;
}

TEST(EarlyStopping, DecidesTheSameOnAnyDevicesInAnyOrder) {
  const auto expected = outcomes(on_one_device());
  const Bytes least = smallest_budget(sweep()[0]);
  const auto expect_same = [&](const SessionConfig& config, const std::string& what) {
    const RunResult result = train(with_rungs(config), sweep());
    EXPECT_EQ(outcomes(result), expected) << what;
    return result;
  };
  expect_same(session_of(2, kAmple), "two devices");
  const RunResult spilled = expect_same(session_of(1, least), "spilled");
  EXPECT_GT(spilled.trials[0].num_shards, 1);
  for (const PolicyKind policy : {PolicyKind::srtf, PolicyKind::fifo, PolicyKind::random}) {
    SessionConfig config = session_of(2, least);
    config.policy = policy;
    expect_same(config, to_string(policy));
  }
  for (const SharingKind sharing : {SharingKind::priority, SharingKind::wfs, SharingKind::fill}) {
    SessionConfig config = session_of(2, kAmple);
    config.sharing = sharing;
    expect_same(config, to_string(sharing));
  }
}

/// Negative control: other losses lead to other decisions.
TEST(EarlyStopping, DecidesByLosses) {
  auto other = sweep();
  std::swap(other[0].train.learning_rate, other[1].train.learning_rate);
  EXPECT_NE(steps_of(train(with_rungs(session_of(1, kAmple)), other)), steps_of(on_one_device()));
}

/// One lane after the other; a device that fails; rules that change lanes.
TEST(EarlyStopping, DecidesTheSameWhileLanesAndDevicesChange) {
  auto trials = sweep();
  for (TrialConfig& trial : trials) trial.train.data_parallel = kAutoDataParallel;
  SessionConfig config = with_rungs(session_of(3, kAmple));
  config.devices[1].imitate.fault = {.kind = DeviceFault::Kind::fail, .after_ops = 200};
  EXPECT_EQ(outcomes(train(config, trials)), outcomes(on_one_device()));
  config.sharing = SharingKind::fill;
  EXPECT_EQ(outcomes(train(config, trials)), outcomes(on_one_device()));
}

TEST(EarlyStopping, ReportsWaitingTrials) {
  Session session(with_rungs(session_of(1, kAmple)));
  for (const TrialConfig& trial : sweep()) session.submit(trial);
  session.run();
  int waits = 0;
  for (const SessionEvent& event : session.poll(0, 0)) {
    if (event.kind != Kind::state || event.state != TrialState::waiting) continue;
    const std::string step = std::to_string(event.step);
    EXPECT_EQ(event.reason, "other trials have still to come to step " + step +
                                ", where early stopping compares them");
    ++waits;
  }
  EXPECT_EQ(waits, 4 + 1);  // the last one to arrive does not wait
}

/// A checkpoint of a trial that waits, at a rung or for its share, would block all others: its
/// updates are still to come.
class Checkpoints : public ::testing::TestWithParam<SharingKind> {};

TEST_P(Checkpoints, DoNotWaitForWaitingTrials) {
  const TemporaryFolder folder;
  auto trials = sweep();
  for (TrialConfig& trial : trials) {
    trial.checkpoint = {.folder = folder.path() / trial.name, .every_steps = 1};
  }
  SessionConfig config = with_rungs(session_of(1, kAmple));
  config.sharing = GetParam();
  EXPECT_EQ(outcomes(train(config, trials)), outcomes(on_one_device()));
}
INSTANTIATE_TEST_SUITE_P(EarlyStopping, Checkpoints,
                         ::testing::Values(SharingKind::none, SharingKind::priority));

TEST(EarlyStopping, IgnoresFailedTrials) {
  auto trials = sweep();
  trials[0] = with_before(trials[0], [](LayerContext& context) {
    if (context.training && context.random.step == 1) throw Error("broken");
  });
  const RunResult result = train(with_rungs(session_of(1, kAmple)), trials);
  ASSERT_EQ(result.trials[0].state, TrialState::failed);
  EXPECT_EQ(result.trials[0].steps, 1);
  auto steps = steps_of(result);
  std::ranges::sort(steps);
  EXPECT_EQ((std::vector(steps.begin() + 1, steps.end())),
            (std::vector<std::int64_t>{3, 3, 6, 20}));
}

TEST(EarlyStopping, NeedsHostMemoryForAllTrials) {
  SessionConfig config = with_rungs(session_of(1, kAmple));
  Bytes homes = 0;
  {
    Session session(config);
    for (const TrialConfig& trial : sweep())
      homes += session.plan(session.submit(trial)).home_bytes;
    session.check();
  }
  config.host_memory = homes - 1;
  Session session(config);
  for (const TrialConfig& trial : sweep()) session.submit(trial);
  const auto error = thrown<DoesNotFit>([&] { session.check(); });
  EXPECT_EQ(error.needed, homes);
  EXPECT_EQ(error.budget, homes - 1);
  EXPECT_NE(std::string(error.what()).find("all 5 trials, which early stopping"), std::string::npos)
      << error.what();
  EXPECT_THROW(session.simulate(), DoesNotFit);
  EXPECT_THROW(session.run(), DoesNotFit);
  config.host_memory = homes;
  EXPECT_EQ(outcomes(train(config, sweep())), outcomes(on_one_device()));
}

TEST(EarlyStopping, SimulatesTheFirstTrialsAsTheBest) {
  const auto simulated = [](const SessionConfig& config) {
    Session session(config);
    for (const TrialConfig& trial : sweep()) session.submit(trial);
    return session.simulate();
  };
  const RunResult halved = simulated(with_rungs(session_of(2, kAmple)));
  EXPECT_EQ(steps_of(halved), (std::vector<std::int64_t>{20, 6, 3, 3, 3}));
  const RunResult whole = simulated(session_of(2, kAmple));
  EXPECT_EQ(steps_of(whole), std::vector<std::int64_t>(5, 20));
  EXPECT_LT(total(halved, &DeviceResult::ops), total(whole, &DeviceResult::ops) / 2);
  SessionConfig config = with_rungs(session_of(2, kAmple));
  config.sharing = SharingKind::priority;
  EXPECT_EQ(steps_of(simulated(config)), steps_of(halved));
}

TEST(EarlyStopping, RefusesInvalidSettings) {
  for (const auto& [early, field] :
       {std::pair{EarlyTerminate{0, 3}, "min_iter"}, {EarlyTerminate{1, 1}, "eta"}}) {
    const auto error =
        thrown<ConfigError>([&] { Session(with_rungs(session_of(1, kAmple), early)); });
    EXPECT_EQ(error.field, std::string("sweep.early_terminate.") + field);
  }
}

/// Sessions of one sweep, each stopped after `stop_after` commits of all trials.
class Sessions {
 public:
  explicit Sessions(std::int64_t every_steps) : trials_(sweep()) {
    for (TrialConfig& trial : trials_) {
      trial.checkpoint = {.folder = folder_.path() / trial.name, .every_steps = every_steps};
    }
  }

  /// 0: runs to the end.
  RunResult run(const SessionConfig& config, int stop_after) {
    Session session(config);
    session.keep_journal(folder_.path());
    for (const TrialConfig& trial : trials_) session.submit(trial);
    std::jthread stopper([&](const std::stop_token& token) {
      int commits = 0;
      for (std::uint64_t seen = 0; stop_after > 0 && !token.stop_requested();) {
        for (const SessionEvent& event : session.poll(seen, 0.05)) {
          seen = event.sequence;
          commits += event.kind == Kind::step ? 1 : 0;
          if (commits >= stop_after) return session.stop();
        }
      }
    });
    session.simulate();
    session.run();
    stopper.request_stop();
    return session.result();
  }

  /// Unfinished trials are submitted alone, and start again.
  void forget_ended(const RunResult& result) {
    for (TrialConfig& trial : trials_) trial.checkpoint = {};
    for (const TrialResult& trial : result.trials) {
      if (is_final(trial.state))
        std::erase_if(trials_, [&](const auto& t) { return t.name == trial.name; });
    }
  }

 private:
  TemporaryFolder folder_;
  std::vector<TrialConfig> trials_;
};

/// Steps and states that a journal keeps of trials that ended in earlier sessions.
std::vector<std::tuple<std::string, TrialState, std::int64_t, std::string>> ends(
    const RunResult& result) {
  std::vector<std::tuple<std::string, TrialState, std::int64_t, std::string>> all;
  for (const TrialResult& trial : result.trials) {
    all.emplace_back(trial.name, trial.state, trial.steps, trial.weights_xxh3);
  }
  return all;
}

TEST(EarlyStopping, DecidesTheSameAfterInterruptions) {
  for (const int stop_after : {5, 13}) {
    Sessions sessions(stop_after == 5 ? 4 : 0);
    RunResult last;
    int num_sessions = 0;
    const auto is_open = [](const TrialResult& trial) { return !is_final(trial.state); };
    do {
      const SessionConfig config = session_of(1 + num_sessions % 2, kAmple);
      last = sessions.run(with_rungs(config), stop_after);
      ASSERT_LT(++num_sessions, 60);
    } while (std::ranges::any_of(last.trials, is_open));
    EXPECT_GT(num_sessions, 2);
    EXPECT_EQ(ends(last), ends(on_one_device())) << stop_after;
  }
}

/// Only the last two steps between rungs are kept: the means are the same, bit by bit.
TEST(EarlyStopping, DecidesTheSameWithShortHistories) {
  Sessions sessions(1);
  SessionConfig config = with_rungs(session_of(1, kAmple));
  config.max_history = 2;
  RunResult last;
  int num_sessions = 0;
  do {
    last = sessions.run(config, 7);
    ASSERT_LT(++num_sessions, 60);
  } while (
      std::ranges::any_of(last.trials, [](const auto& trial) { return !is_final(trial.state); }));
  EXPECT_GT(num_sessions, 2);
  EXPECT_EQ(ends(last), ends(on_one_device()));
  for (std::size_t t = 0; t < last.trials.size(); ++t) {
    EXPECT_EQ(last.trials[t].rung_losses, on_one_device().trials[t].rung_losses);
    EXPECT_EQ(last.trials[t].first_loss, on_one_device().trials[t].first_loss);
    EXPECT_LE(last.trials[t].losses.size(), 2u);
  }
}

/// A client need not submit ended trials: the journal has their losses at rungs.
TEST(EarlyStopping, ComparesWithTrialsOfEarlierSessions) {
  Sessions sessions(0);
  const RunResult first = sessions.run(with_rungs(session_of(1, kAmple)), 20);
  const auto num_ended = std::ranges::count_if(
      first.trials, [](const TrialResult& trial) { return is_final(trial.state); });
  ASSERT_GE(num_ended, 3);
  ASSERT_LT(num_ended, 5);
  sessions.forget_ended(first);
  const RunResult rest = sessions.run(with_rungs(session_of(2, kAmple)), 0);
  EXPECT_EQ(rest.trials.size(), 5u - static_cast<std::size_t>(num_ended));
  const auto expected = ends(on_one_device());
  for (const auto& end : ends(rest)) {
    EXPECT_NE(std::ranges::find(expected, end), expected.end()) << std::get<0>(end);
  }
}

TEST(EarlyStopping, RefusesToResumeWithOtherRungs) {
  Sessions sessions(0);
  sessions.run(with_rungs(session_of(1, kAmple)), 4);
  const auto error = thrown<ConfigError>(
      [&] { sessions.run(with_rungs(session_of(1, kAmple), {.min_iter = 3, .eta = 3}), 0); });
  EXPECT_NE(std::string(error.what())
                .find("sweep.early_terminate: was min_iter 3, eta 2, is min_iter 3, eta 3"),
            std::string::npos)
      << error.what();
}

}  // namespace
}  // namespace spillway::testing
