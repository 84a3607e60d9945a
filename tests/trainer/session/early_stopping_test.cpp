#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"

/// Which trials of a sweep go on follows from their losses: not from devices, order or
/// interruptions.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

// Rungs 3, 6, 12.
const EarlyTerminate kEarly{.min_iter = 3, .eta = 2, .metric = MetricKind::final_loss};
constexpr EarlyTerminate kByEvaluation{.min_iter = 3, .eta = 2};
constexpr EarlyTerminate kAsha{
    .min_iter = 3, .eta = 2, .type = EarlyTerminateKind::asha, .max_concurrent_trials = 2};
constexpr EarlyTerminate kMedian{
    .min_iter = 3, .type = EarlyTerminateKind::median, .max_concurrent_trials = 4, .interval = 2};
constexpr EarlyTerminate kPbt{.min_iter = 3,
                              .type = EarlyTerminateKind::pbt,
                              .interval = 4,
                              .metric = MetricKind::final_loss};
constexpr EarlyTerminate kPbtByEvaluation{
    .min_iter = 3, .type = EarlyTerminateKind::pbt, .interval = 4};
constexpr EarlyTerminate kBrackets{.min_iter = 3, .eta = 2, .brackets = 2};

/// Of which 5, 2 and 1 come to the rungs.
std::vector<TrialConfig> sweep() {
  GptConfig model = tiny_gpt();
  model.num_hidden_layers = 2;
  std::vector<TrialConfig> trials;
  for (const double learning_rate : {1e-5, 3e-3, 1e-4, 1e-2, 1e-3}) {
    TrialConfig trial = tiny_trial("trial " + std::to_string(trials.size()), model);
    trial.train.virtual_nodes = trial.train.reduction_groups = 4;
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

/// What must be the same, bit by bit.
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

TEST(EarlyStopping, HalvesAtEveryRungAndTheBestEndsAsIfAlone) {
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
  EXPECT_EQ(last->reason.find("at step 3 it was number 5 of 5 by mean loss ("), 0u) << last->reason;
}

/// The control: other losses are other decisions.
TEST(EarlyStopping, FollowsFromLosses) {
  auto other = sweep();
  std::swap(other[0].train.learning_rate, other[1].train.learning_rate);
  EXPECT_NE(steps_of(train(with_rungs(session_of(1, kAmple)), other)), steps_of(on_one_device()));
}

/// One lane after the other; a device that fails; rules that decide on lanes.
TEST(EarlyStopping, IsTheSameWhileLanesAndDevicesChange) {
  auto trials = sweep();
  for (TrialConfig& trial : trials) trial.train.data_parallel = kAutoDataParallel;
  SessionConfig config = with_rungs(session_of(3, kAmple));
  config.devices[1].imitate.fault = {.kind = DeviceFault::Kind::fail, .after_ops = 200};
  EXPECT_EQ(outcomes(train(config, trials)), outcomes(on_one_device()));
  config.sharing = SharingKind::fill;
  EXPECT_EQ(outcomes(train(config, trials)), outcomes(on_one_device()));
}

TEST(EarlyStopping, SaysWhoWaitsForWhom) {
  Session session(with_rungs(session_of(1, kAmple)));
  for (const TrialConfig& trial : sweep()) session.submit(trial);
  session.run();
  int waits = 0;
  for (const SessionEvent& event : session.poll(0, 0)) {
    if (event.kind != Kind::state || event.state != TrialState::waiting) continue;
    EXPECT_EQ(event.reason, "other trials have not reached step " + std::to_string(event.step) +
                                " yet, where early stopping compares them");
    ++waits;
  }
  EXPECT_EQ(waits, 4 + 1);  // the last to come does not wait
}

/// A checkpoint of one that waits, at a rung or for its share, would hold up everybody's: its
/// updates are still to come.
class Checkpoints : public ::testing::TestWithParam<SharingKind> {};

TEST_P(Checkpoints, DoNotWaitForTrialsThatWait) {
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

TEST(EarlyStopping, DoesNotWaitForATrialThatFails) {
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
  EXPECT_NE(std::string(error.what()).find("all 5 trials, which wait for each other"),
            std::string::npos)
      << error.what();
  EXPECT_THROW(session.simulate(), DoesNotFit);
  EXPECT_THROW(session.run(), DoesNotFit);
  config.host_memory = homes;
  EXPECT_EQ(outcomes(train(config, sweep())), outcomes(on_one_device()));
}

TEST(EarlyStopping, IsSimulatedAsIfTheFirstWereTheBest) {
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

TEST(EarlyStopping, RefusesWhatMeansNothing) {
  constexpr auto kRule = EarlyTerminateKind::asha;
  for (const auto& [early, field] :
       {std::pair{EarlyTerminate{0, 3}, "min_iter"},
        {EarlyTerminate{1, 1}, "eta"},
        {EarlyTerminate{.brackets = 0}, "brackets"},
        {EarlyTerminate{.type = kRule, .max_concurrent_trials = 0}, "max_concurrent_trials"}}) {
    const auto error =
        thrown<ConfigError>([&] { Session(with_rungs(session_of(1, kAmple), early)); });
    EXPECT_EQ(error.field, std::string("sweep.early_terminate.") + field);
  }
}

/// Sessions of one sweep, each stopped after so many commits of all trials.
class Sessions {
 public:
  explicit Sessions(std::int64_t every_steps) : trials_(sweep()) {
    for (TrialConfig& trial : trials_) {
      trial.checkpoint = {.folder = folder_.path() / trial.name, .every_steps = every_steps};
    }
  }

  /// 0: to its end. The second session is simulated before, which takes a second.
  RunResult run(const SessionConfig& config, int stop_after) {
    WatchedSession run(config);
    run.session.keep_journal(folder_.path());
    for (const TrialConfig& trial : trials_) run.session.submit(trial);
    if (num_runs_++ == 1) run.session.simulate();
    int commits = 0;
    run.run([&](const SessionEvent& event) {
      commits += event.kind == Kind::step ? 1 : 0;
      if (stop_after > 0 && commits >= stop_after) run.session.stop();
    });
    return run.result;
  }

  /// Those that have not ended are submitted alone, and begin again.
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
  int num_runs_ = 0;
};

/// Steps and states, which a journal keeps of trials that ended in sessions before.
std::vector<std::tuple<std::string, TrialState, std::int64_t, std::string>> ends(
    const RunResult& result) {
  std::vector<std::tuple<std::string, TrialState, std::int64_t, std::string>> all;
  for (const TrialResult& trial : result.trials) {
    all.emplace_back(trial.name, trial.state, trial.steps, trial.weights_xxh3);
  }
  return all;
}

/// A run that compared training losses has the contract of programs that compared nothing else.
TEST(EarlyStopping, RefusesAnotherComparison) {
  Sessions sessions(0);
  sessions.run(with_rungs(session_of(1, kAmple)), 4);
  const auto expect_refused = [&](const EarlyTerminate& other, const std::string& part) {
    const auto error =
        thrown<ConfigError>([&] { sessions.run(with_rungs(session_of(1, kAmple), other), 0); });
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  expect_refused(kByEvaluation, "was min_iter 3, eta 2, is min_iter 3, eta 2, by eval_loss");
  expect_refused(kByEvaluation, "sweep.metric.name=final_loss");
  EarlyTerminate other = kEarly;
  other.eta = 3;
  expect_refused(other, "sweep.early_terminate: was min_iter 3, eta 2, is min_iter 3, eta 3");
}

/// A client need not submit those that have ended: the journal has what they said at rungs.
TEST(EarlyStopping, ComparesWithTrialsThatEndedInSessionsBefore) {
  Sessions sessions(0);
  const RunResult first = sessions.run(with_rungs(session_of(1, kAmple)), 20);
  const auto num_ended = std::ranges::count_if(
      first.trials, [](const TrialResult& trial) { return is_final(trial.state); });
  ASSERT_GE(num_ended, 1);
  ASSERT_LT(num_ended, 5);
  sessions.forget_ended(first);
  const RunResult rest = sessions.run(with_rungs(session_of(2, kAmple)), 0);
  EXPECT_EQ(rest.trials.size(), 5u - static_cast<std::size_t>(num_ended));
  const auto expected = ends(on_one_device());
  for (const auto& end : ends(rest)) {
    EXPECT_NE(std::ranges::find(expected, end), expected.end()) << std::get<0>(end);
  }
}

/// The journal has its losses already when it comes into a run, to be cloned.
TEST(EarlyStopping, CountsATrialThatEndedBeforeOnce) {
  EarlyTerminate early = kAsha;
  early.metric = MetricKind::final_loss;
  const TemporaryFolder folder;
  const std::vector<TrialConfig> trials = sweep();
  const TrialConfig &bad = trials[0], &good = trials[1];
  {
    Session before(with_rungs(session_of(1, kAmple), early));
    before.keep_journal(folder.path());
    before.submit(good);
    before.run();
  }
  Session session(with_rungs(session_of(1, kAmple), early));
  session.keep_journal(folder.path());
  session.start();
  const JobId ended = session.submit(good), compared = session.submit(bad);
  session.finish();
  const auto results = session.result().trials;
  EXPECT_EQ(results.at(ended.index()).state, TrialState::done);
  EXPECT_NE(results.at(compared.index()).reason.find("at step 3 it was number 2 of 2 by"),
            std::string::npos)
      << results.at(compared.index()).reason;
}

/// All rules and metrics.
class Rules : public ::testing::TestWithParam<EarlyTerminate> {
 protected:
  /// What this rule is tried with: one of `all`, in turn from rule to rule; in a campaign, all.
  template <typename T>
  static std::vector<T> some_of(const std::vector<T>& all) {
    if (campaign_size(1) > 1) return all;
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    return {all[std::stoul(name.substr(name.rfind('/') + 1)) % all.size()]};
  }
};

TEST_P(Rules, AreTheSameOnAnyDevicesInAnyOrder) {
  const RunResult one = train(with_rungs(session_of(1, kAmple), GetParam()), sweep());
  const auto expected = outcomes(one);
  EXPECT_TRUE(std::ranges::any_of(one.trials, [](const TrialResult& trial) {
    return trial.state == TrialState::stopped_early || !trial.changes.empty();
  }));
  for (const TrialResult& trial : one.trials) {
    for (const auto& rung : trial.rung_losses) {
      if (GetParam().metric == MetricKind::final_loss) break;
      EXPECT_NE(std::ranges::find(trial.eval_losses, rung), trial.eval_losses.end())
          << trial.name << " at " << rung.first;
    }
  }
  const RunResult spilled =
      train(with_rungs(session_of(1, smallest_budget(sweep()[0])), GetParam()), sweep());
  EXPECT_GT(spilled.trials[0].num_shards, 1);
  EXPECT_EQ(outcomes(spilled), expected);
  for (const SharingKind sharing : some_of<SharingKind>(
           {SharingKind::none, SharingKind::priority, SharingKind::wfs, SharingKind::fill})) {
    SessionConfig config = with_rungs(session_of(2, kAmple), GetParam());
    config.policy = PolicyKind::random;
    config.sharing = sharing;
    EXPECT_EQ(outcomes(train(config, sweep())), expected) << to_string(sharing);
  }
}

/// Of the steps between rungs only the last two are kept.
TEST_P(Rules, AreTheSameHoweverOftenTheyAreInterrupted) {
  const RunResult whole = train(with_rungs(session_of(1, kAmple), GetParam()), sweep());
  for (const int stop_after : some_of<int>({5, 13})) {
    Sessions sessions(stop_after == 5 ? 4 : 0);
    RunResult last;
    int num_sessions = 0;
    const auto is_open = [](const TrialResult& trial) { return !is_final(trial.state); };
    do {
      SessionConfig config = with_rungs(session_of(1 + num_sessions % 2, kAmple), GetParam());
      config.max_history = 2;
      last = sessions.run(config, stop_after);
      ASSERT_LT(++num_sessions, 60);
    } while (std::ranges::any_of(last.trials, is_open));
    EXPECT_GT(num_sessions, 2);
    EXPECT_EQ(ends(last), ends(whole)) << stop_after;
    for (std::size_t t = 0; t < last.trials.size(); ++t) {
      EXPECT_EQ(last.trials[t].rung_losses, whole.trials[t].rung_losses);
      EXPECT_EQ(last.trials[t].first_loss, whole.trials[t].first_loss);
      EXPECT_LE(last.trials[t].losses.size(), 2u);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(EarlyStopping, Rules,
                         ::testing::Values(kEarly, kByEvaluation, kBrackets, kAsha, kMedian, kPbt,
                                           kPbtByEvaluation));

/// Samples of a token that no training sample has: a model that is trained longer is worse on them.
class UnseenToken final : public DataSource {
 public:
  explicit UnseenToken(std::int64_t tokens) : tokens_(tokens) {}
  std::uint64_t num_samples() const override { return 64; }
  std::int64_t sample_elements() const override { return tokens_; }
  void read(std::uint64_t, std::span<std::byte> row) const override {
    std::ranges::fill(values_of<std::int64_t>(row), 63);
  }

 private:
  std::int64_t tokens_;
};

TEST(EarlyStopping, FollowsTheMetricAndNotTheTrainingLoss) {
  auto trials = sweep();
  const auto best = std::ranges::max_element(on_one_device().trials, {}, &TrialResult::steps);
  const auto index = static_cast<std::size_t>(best - on_one_device().trials.begin());
  auto data = std::make_shared<DataSplit>(*trials[index].data);
  data->eval = std::make_shared<UnseenToken>(data->eval->sample_elements());
  trials[index].data = data;
  const auto steps = [&](const EarlyTerminate& early) {
    return steps_of(train(with_rungs(session_of(1, kAmple), early), trials))[index];
  };
  EXPECT_EQ(steps(kEarly), 20);
  EXPECT_LT(steps(kByEvaluation), 20);
}

TEST(EarlyStopping, FollowsTheGoal) {
  EarlyTerminate early = kByEvaluation;
  early.goal = MetricGoal::maximize;
  double least_passed = 1e9, most_stopped = 0;
  for (const TrialResult& trial : train(with_rungs(session_of(1, kAmple), early), sweep()).trials) {
    const double loss = trial.rung_losses.at(0).second;
    if (trial.steps > 3) least_passed = std::min(least_passed, loss);
    if (trial.steps == 3) most_stopped = std::max(most_stopped, loss);
  }
  EXPECT_GT(least_passed, most_stopped);
}

TEST(EarlyStopping, NeedsLittleHostMemoryForOneTrialAfterTheOther) {
  SessionConfig config = with_rungs(session_of(1, kAmple), kAsha);
  const auto expected = outcomes(train(config, sweep()));
  Bytes home = 0;
  {
    Session session(config);
    home = session.plan(session.submit(sweep()[0])).home_bytes;
  }
  config.host_memory = 2 * home;
  EXPECT_EQ(outcomes(train(config, sweep())), expected);
  config.host_memory = 2 * home - 1;
  Session session(config);
  for (const TrialConfig& trial : sweep()) session.submit(trial);
  const auto error = thrown<DoesNotFit>([&] { session.check(); });
  EXPECT_EQ(error.needed, 2 * home);
  EXPECT_NE(std::string(error.what()).find("or lower sweep.early_terminate.max_concurrent_trials"),
            std::string::npos)
      << error.what();
}

TEST(EarlyStopping, SaysWhoWaitsToBegin) {
  Session session(with_rungs(session_of(1, kAmple), kAsha));
  for (const TrialConfig& trial : sweep()) session.submit(trial);
  session.run();
  int waits = 0;
  for (const SessionEvent& event : session.poll(0, 0)) {
    waits += event.reason == "2 trials train at once; it begins when one of them ends" ? 1 : 0;
  }
  EXPECT_EQ(waits, 3);
}

TEST(EarlyStopping, NeedsSamplesToCompareEvaluations) {
  Session session(with_rungs(session_of(1, kAmple), kByEvaluation));
  TrialConfig blind = sweep()[0];
  auto data = std::make_shared<DataSplit>(*blind.data);
  data->eval = nullptr;
  blind.data = data;
  const auto error = thrown<ConfigError>([&] { session.submit(blind); });
  EXPECT_EQ(error.field, "sweep.metric.name");
  blind.train.max_steps = 3;  // it is not compared
  session.submit(blind);
}

}  // namespace
}  // namespace spillway::testing
