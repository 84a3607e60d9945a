#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "spillway/error.h"
#include "tests/support/check/outcome.h"
#include "tests/support/random/broken_rules.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/random/random_configuration.h"
#include "tests/support/run/watched_session.h"

/// Hundreds of small random runs: any models, budgets, lanes, devices, other jobs and events. Every
/// job has the bits of its contract on one device that holds it whole, in one lane.
///
///   SPILLWAY_SEED=71 random_configuration_test      one run
///   SPILLWAY_CASES=5000 random_configuration_test   seeds 1 to 5000
/// Seeds are printed at the start of their run, so the last one names a run that hangs.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

/// A rule that a control breaks in a run, and the bits that the reference computes.
struct BrokenRule {
  std::function<TrialConfig(const TrialConfig&)> in_run, in_oracle;
};

const TemporaryFolder& scratch() {
  static const TemporaryFolder folder;
  return folder;
}

Outcome computed_alone(const TrialConfig& trial) {
  WatchedSession run(session_of(1, kAmple));
  const JobId id = run.session.submit(trial);
  run.run();
  return outcome_of(run.session, id);
}

/// Depends on the contract only: one lane, and any order.
TrialConfig unplaced(TrialConfig trial) {
  trial.train.data_parallel = 1;
  trial.train.max_data_parallel = 0;
  trial.train.lane_groups.clear();
  trial.train.strategy.reset();
  trial.train.strategies.clear();
  trial.train.order = OrderChoice::automatic;
  return trial;
}

const Outcome& oracle(const Contract& contract) {
  static std::map<std::string, Outcome> known;
  if (known.size() > 100) known.clear();
  if (!known.contains(contract.text)) {
    known[contract.text] = computed_alone(unplaced(contract.trial));
  }
  return known[contract.text];
}

/// Paths taken, over all runs.
struct Taken {
  int spilled = 0, lanes = 0, placed = 0, resized = 0, redone = 0, lost = 0, hung = 0, shrank = 0,
      joined = 0, left = 0, company = 0, files = 0, dedicated_activations = 0, refused = 0,
      rescued = 0, by_devices = 0;
};

/// One configuration as a session.
class RandomRun {
 public:
  explicit RandomRun(const RandomConfiguration& configuration,
                     const std::optional<BrokenRule>& broken = {})
      : configuration_(configuration), broken_(broken) {}

  /// Differences from the references; empty: none.
  std::string differences(Taken& taken) {
    choose_budgets();
    WatchedSession run(configuration_.session);
    submit_all(run);
    run.run([&](const SessionEvent& event) { react(run, event, taken); });
    count(run, taken);
    std::string found;
    for (std::size_t j = 0; j < configuration_.jobs.size(); ++j) {
      const Contract& job = configuration_.jobs[j];
      const std::string here = difference(outcome_of(run.session, JobId(j)), oracle_of(job));
      if (!here.empty()) found += "job " + std::to_string(j) + " differs:" + here + "\n";
    }
    return found;
  }

 private:
  Outcome oracle_of(const Contract& job) const {
    if (!broken_) return oracle(job);
    return computed_alone(broken_->in_oracle(unplaced(job.trial)));
  }

  /// The first job runs in lockstep, so that changes happen at their steps.
  void submit_all(WatchedSession& run) const {
    for (std::size_t j = 0; j < configuration_.jobs.size(); ++j) {
      const TrialConfig& trial = configuration_.jobs[j].trial;
      const TrialConfig placed = broken_ ? broken_->in_run(trial) : trial;
      j == 0 ? run.submit_in_lockstep(placed) : run.session.submit(placed);
    }
  }

  void choose_budgets() {
    SessionConfig& session = configuration_.session;
    session.pilot_cache = measured_costs();
    if (configuration_.homes_in_files) session.offload_path = scratch().path();
    SessionConfig ample = session_of(static_cast<int>(session.devices.size()), kAmple);
    ample.activation_share = session.activation_share;
    plan(ample, [&](const TrialPlan& plan) {
      least_ = std::max(least_, plan.smallest_budget_bytes);
      whole_ = std::max(whole_, plan.unit_weights_bytes + plan.unit_sums_bytes +
                                    plan.unit_activations_bytes + plan.unit_boundaries_bytes);
    });
    for (std::size_t d = 0; d < session.devices.size(); ++d) {
      session.devices[d].memory = budget_at(configuration_.budget_percents[d]);
    }
    if (!configuration_.homes_take_turns) return;
    Bytes largest_home = 0;
    plan(session,
         [&](const TrialPlan& plan) { largest_home = std::max(largest_home, plan.home_bytes); });
    session.host_memory = largest_home;
  }

  Bytes budget_at(int percent) const {
    const Bytes more = std::max(whole_, least_) - least_;
    return least_ + more * static_cast<Bytes>(percent) / 100;
  }

  void plan(const SessionConfig& config, const std::function<void(const TrialPlan&)>& look) const {
    Session session(config);
    for (const Contract& job : configuration_.jobs) look(session.plan(session.submit(job.trial)));
  }

  void react(WatchedSession& run, const SessionEvent& event, Taken& taken) {
    if (event.kind == Kind::joined) ++present_;
    if (event.kind == Kind::left || event.kind == Kind::lost) ++gone_;
    const auto devices = static_cast<int>(configuration_.session.devices.size()) + present_ - gone_;
    const bool waits = event.kind == Kind::state && event.state == TrialState::waiting;
    if (waits || (event.kind == Kind::lost && devices == 0)) {
      ++taken.rescued;
      run.session.add_device({.memory = kAmple});
    }
    if (event.kind != Kind::step || event.trial != JobId(0)) return;
    for (const RandomChange& change : configuration_.changes) {
      if (change.step == event.step) make(run.session, change, taken);
    }
  }

  /// The session refuses impossible changes, and that changes no bit either.
  void make(Session& session, const RandomChange& change, Taken& taken) const {
    try {
      if (change.kind == RandomChange::Kind::resize) session.resize(JobId(0), change.number);
      if (change.kind == RandomChange::Kind::remove) session.remove_device(change.number);
      if (change.kind == RandomChange::Kind::add) {
        session.add_device({.memory = budget_at(change.percent)});
      }
    } catch (const Error&) {
      ++taken.refused;
    }
  }

  void count(const WatchedSession& run, Taken& taken) const {
    const auto number = [&](Kind kind) { return static_cast<int>(run.all(kind).size()); };
    taken.resized += number(Kind::resized);
    taken.redone += number(Kind::redone);
    taken.lost += number(Kind::lost);
    taken.joined += number(Kind::joined);
    for (const SessionEvent& left : run.all(Kind::left)) {
      ++(left.reason == "it was removed" ? taken.left : taken.shrank);
    }
    for (const SessionEvent& lost : run.all(Kind::lost)) {
      taken.hung += lost.reason == "it gave no sign of life in time" ? 1 : 0;
    }
    taken.dedicated_activations += configuration_.session.activation_share > 0 ? 1 : 0;
    taken.company += configuration_.jobs.size() > 1 ? 1 : 0;
    taken.files += configuration_.homes_in_files ? 1 : 0;
    for (std::size_t t = 0; t < run.result.trials.size(); ++t) {
      const TrialResult& trial = run.result.trials[t];
      const TrainConfig& train = configuration_.jobs[t].trial.train;
      const bool is_placed = train.strategy_on(trial.lanes) != nullptr;
      taken.by_devices += train.strategies.contains(trial.lanes) ? 1 : 0;
      taken.spilled += trial.num_shards > 1 ? 1 : 0;
      (is_placed ? taken.placed : taken.lanes) += trial.lanes > 1 ? 1 : 0;
    }
  }

  RandomConfiguration configuration_;
  std::optional<BrokenRule> broken_;
  Bytes least_ = 0, whole_ = 0;
  int present_ = 0, gone_ = 0;
};

void expect_every_path(const Taken& taken, int runs) {
  const int twentieth = runs / 20, hundredth = runs / 100;
  for (const int common : {taken.spilled, taken.lanes, taken.placed, taken.company, taken.files,
                           taken.dedicated_activations, taken.resized, taken.redone, taken.lost,
                           taken.joined, taken.left}) {
    EXPECT_GT(common, twentieth);
  }
  for (const int rare :
       {taken.hung, taken.shrank, taken.refused, taken.rescued, taken.by_devices}) {
    EXPECT_GT(rare, hundredth);
  }
}

TEST(RandomConfiguration, HasTheBitsOfOneDevice) {
  const std::uint64_t only = from_environment("SPILLWAY_SEED", 0);
  const std::uint64_t first = only ? only : from_environment("SPILLWAY_FIRST", 1);
  const std::uint64_t last =
      only ? only : first - 1 + from_environment("SPILLWAY_CASES", campaign_size(60));
  Taken taken;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    std::cout << seed << ' ' << std::flush;
    const RandomConfiguration configuration = RandomCircumstances(seed).make();
    SCOPED_TRACE("SPILLWAY_SEED=" + std::to_string(seed) + "\n" + to_text(configuration));
    ASSERT_NO_THROW(EXPECT_EQ(RandomRun(configuration).differences(taken), ""));
    if (::testing::Test::HasFailure()) return;
  }
  std::cout << "\n";
  if (last - first >= 299) expect_every_path(taken, static_cast<int>(last - first + 1));
}

/// In the first runs in which the job can show that the rule is broken.
void expect_caught(const std::function<bool(const Contract&)>& shows, const BrokenRule& rule) {
  constexpr int kRuns = 8;
  int runs = 0;
  for (std::uint64_t seed = 1; runs < kRuns; ++seed) {
    RandomConfiguration configuration = RandomCircumstances(seed).make();
    configuration.jobs.resize(1);
    configuration.changes.clear();
    for (DeviceConfig& device : configuration.session.devices) device = {};
    if (configuration.jobs[0].trial.train.data_parallel == 1 || !shows(configuration.jobs[0]))
      continue;
    ++runs;
    SCOPED_TRACE(to_text(configuration));
    Taken taken;
    EXPECT_EQ(RandomRun(configuration).differences(taken), "");
    EXPECT_NE(RandomRun(configuration, rule).differences(taken), "") << "the control";
  }
}

TEST(RandomConfigurationControl, DetectsRandomNumbersPerDevice) {
  const auto drops_out = [](const Contract& job) { return job.drops_out; };
  expect_caught(drops_out, {seeded_by_device, seeded_by_device});
}

TEST(RandomConfigurationControl, DetectsLeftFoldsPerDevice) {
  // Both orders agree for two virtual nodes per lane; fp32 sums of bf16 gradients are often exact.
  const auto has_another_tree = [](const Contract& job) {
    const TrainConfig& train = job.trial.train;
    return train.dtype == FloatType::fp32 && train.strategies.empty() &&
           train.data_parallel < train.reduction_groups &&
           train.virtual_nodes % train.data_parallel == 0 &&
           train.virtual_nodes > 2 * train.data_parallel;
  };
  const auto summed = [](TrialConfig trial) {
    trial.train.max_data_parallel = 0;
    return summed_by_lane(trial, trial.train.data_parallel);
  };
  expect_caught(has_another_tree, {summed, [](const TrialConfig& trial) { return trial; }});
}

}  // namespace
}  // namespace spillway::testing
