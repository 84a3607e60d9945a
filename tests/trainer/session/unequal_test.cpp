#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "models/families/gpt.h"
#include "spillway/error.h"
#include "tests/support/check/measured.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/training_run.h"
#include "trainer/profile/pilot.h"

/// Devices of different speeds: which ones take part in a trial, with which share.
namespace spillway::testing {
namespace {

TrialConfig trial_with_lanes(int lanes) {
  TrialConfig trial = tiny_trial();
  trial.train.batch_size = 24;
  trial.train.virtual_nodes = trial.train.reduction_groups = 12;
  trial.train.data_parallel = lanes;
  return trial;
}

SessionConfig slowed(std::vector<double> slowdowns, Bytes budget = kAmple) {
  SessionConfig config;
  for (const double slowdown : slowdowns) {
    config.devices.push_back({.memory = budget, .imitate = {.slowdown = slowdown}});
  }
  return config;
}

const RunResult& alone() {
  static const RunResult result = train(session_of(1, kAmple), trial_with_lanes(1));
  return result;
}

/// A session with this trial, retried until it has the lanes that undisturbed measurements give.
struct PlannedSession {
  PlannedSession(const SessionConfig& config, const TrialConfig& trial,
                 const std::function<bool(const TrialPlan&)>& is_expected) {
    EXPECT_TRUE(holds_once_in_ten([&] {
      session = std::make_unique<Session>(config);
      id = session->submit(trial);
      plan = session->plan(id);
      return is_expected(plan);
    }));
  }

  std::unique_ptr<Session> session;
  JobId id;
  TrialPlan plan;
};

bool has_one_lane(const TrialPlan& plan) { return plan.lanes == 1; }
bool has_two_lanes(const TrialPlan& plan) { return plan.lanes == 2; }

std::uint64_t vns_of(const TrialPlan& plan, std::size_t lane) {
  return static_cast<std::uint64_t>(plan.lane_groups.at(lane));
}

TEST(Unequal, GivesTheSlowDeviceLessWithTheSameBits) {
  for (const bool spilled : {false, true}) {
    const PlannedSession planned(
        slowed({1, 4}, spilled ? smallest_budget(trial_with_lanes(1)) * 5 / 4 : kAmple),
        trial_with_lanes(2), [](const TrialPlan& plan) {
          return has_two_lanes(plan) && plan.lane_groups[0] > plan.lane_groups[1] + 2;
        });
    const TrialPlan& plan = planned.plan;
    planned.session->run();
    const RunResult result = planned.session->result();
    ASSERT_EQ(plan.lanes, 2);
    EXPECT_EQ(plan.num_shards > 1, spilled);
    EXPECT_EQ(plan.lane_devices, (std::vector<std::string>{"cpu:0", "cpu:1"}));
    EXPECT_EQ(std::accumulate(plan.lane_groups.begin(), plan.lane_groups.end(), 0), 12);
    EXPECT_EQ(plan.declined, std::vector<std::string>{});
    // Each device takes its share of 20 steps and two evaluations.
    const auto passes = static_cast<std::uint64_t>(2 * plan.num_shards - 1);
    for (std::size_t d = 0; d < 2; ++d) {
      EXPECT_GE(result.devices[d].ops, 20 * passes * vns_of(plan, d));
      EXPECT_LE(result.devices[d].ops, 26 * passes * vns_of(plan, d));
    }
    expect_within_budgets(result);
    expect_same_bits(result.trials[0], alone().trials[0]);
  }
}

TEST(Unequal, DeclinesAndNamesATooSlowDevice) {
  const PlannedSession planned(slowed({60, 1}), trial_with_lanes(2), has_one_lane);
  const TrialPlan& plan = planned.plan;
  planned.session->run();
  const RunResult result = planned.session->result();
  EXPECT_EQ(plan.lane_devices, std::vector<std::string>{"cpu:1"});
  ASSERT_EQ(plan.declined.size(), 1u);
  EXPECT_TRUE(plan.declined[0].starts_with("cpu:0 is not used: with it a step would take about "))
      << plan.declined[0];
  EXPECT_EQ(result.trials[0].lanes, 1);
  EXPECT_EQ(result.devices[0].ops, 0u);
  expect_same_bits(result.trials[0], alone().trials[0]);
}

TEST(Unequal, DeclinesADeviceWithASlowLink) {
  SessionConfig config = session_of(2, kAmple);
  config.devices[1].imitate.link_bytes_per_s = 1_MiB;
  const TrialPlan plan = PlannedSession(config, trial_with_lanes(2), has_one_lane).plan;
  EXPECT_EQ(plan.lane_devices, std::vector<std::string>{"cpu:0"});
}

TEST(Unequal, DeclinesADeviceWithTooLittleMemory) {
  SessionConfig config = slowed({1, 2, 4});
  config.devices[0].memory = smallest_budget(trial_with_lanes(1)) / 2;
  const TrialPlan plan = PlannedSession(config, trial_with_lanes(2), has_two_lanes).plan;
  EXPECT_EQ(plan.lane_devices, (std::vector<std::string>{"cpu:1", "cpu:2"}));
  ASSERT_EQ(plan.declined.size(), 1u);
  EXPECT_TRUE(plan.declined[0].starts_with("cpu:0 is not used: it has ")) << plan.declined[0];
}

/// Three lanes on unequal devices; the named ones have exactly the memory of even lanes, and a
/// longer lane needs more sums.
SessionConfig tight(const TrialConfig& trial, std::vector<double> slowdowns,
                    const std::vector<std::size_t>& tight_devices, bool estimate) {
  SessionConfig config = slowed(std::vector<double>(slowdowns.size(), 1));
  config.estimate = estimate;
  Session even(config);
  const Bytes least = even.plan(even.submit(trial)).smallest_budget_bytes;
  for (std::size_t d = 0; d < slowdowns.size(); ++d)
    config.devices[d].imitate.slowdown = slowdowns[d];
  for (const std::size_t d : tight_devices) config.devices[d].memory = least;
  return config;
}

TrialConfig three_lanes_of_six_groups() {
  TrialConfig trial = trial_with_lanes(3);
  trial.train.reduction_groups = 6;
  trial.train.order = OrderChoice::shard_major;
  return trial;
}

TEST(Unequal, ChoosesTheFastestLanesThatFit) {
  const auto groups = [](std::vector<double> slowdowns, const std::vector<std::size_t>& devices) {
    const TrialConfig trial = three_lanes_of_six_groups();
    Session session(tight(trial, std::move(slowdowns), devices, /*estimate=*/true));
    return session.plan(session.submit(trial)).lane_groups;
  };
  using Groups = std::vector<int>;
  EXPECT_EQ(groups({4, 4, 1}, {}), (Groups{1, 1, 4})) << "the control: room for all";
  EXPECT_EQ(groups({4, 4, 1}, {0, 1}), Groups{6}) << "on the larger device alone";
  EXPECT_EQ(groups({1.6, 1.6, 1}, {0, 1}), (Groups{2, 2, 2})) << "shorter ones";
  EXPECT_EQ(groups({4, 4, 1}, {0, 1, 2}), (Groups{2, 2, 2})) << "no other fit";
}

TEST(Unequal, RunsIfEvenLanesFit) {
  const TrialConfig trial = three_lanes_of_six_groups();
  Session session(tight(trial, {3, 3, 1}, {0, 1, 2}, /*estimate=*/false));
  session.submit(trial);
  session.run();
  const RunResult result = session.result();
  expect_within_budgets(result);
  TrialConfig one = trial;
  one.train.data_parallel = 1;
  expect_same_bits(result.trials[0], train(session_of(1, kAmple), one).trials[0]);
}

TEST(Unequal, KeepsEqualDevicesAndGivenLanes) {
  Session equal(slowed({2, 2}));
  const TrialPlan even = equal.plan(equal.submit(trial_with_lanes(2)));
  EXPECT_EQ(even.lane_groups, (std::vector<int>{6, 6}));
  EXPECT_EQ(even.lane_devices, std::vector<std::string>{});
  Session unequal(slowed({1, 60}));
  TrialConfig given = trial_with_lanes(2);
  given.train.lane_groups = {7, 5};
  EXPECT_EQ(unequal.plan(unequal.submit(given)).lane_groups, given.train.lane_groups);
}

/// Another device takes over the lane of the leaving device, and from the next step on the trial
/// has a plan for the remaining devices.
TEST(Unequal, ContinuesAfterDevicesLeave) {
  const PlannedSession planned(slowed({1, 3, 3}), trial_with_lanes(2), has_two_lanes);
  planned.session->remove_device(0);
  planned.session->run();
  const RunResult result = planned.session->result();
  EXPECT_EQ(result.devices[0].ops, 0u);
  expect_same_bits(result.trials[0], alone().trials[0]);
}

TEST(Unequal, SimulatesTheSlowDevice) {
  const auto simulated_s = [](double slowdown) {
    Session session(slowed({1, slowdown}));
    TrialConfig trial = trial_with_lanes(2);
    trial.train.lane_groups = {6, 6};
    session.submit(trial);
    return session.simulate().wall_s;
  };
  EXPECT_TRUE(holds_once_in_ten([&] { return simulated_s(4) > 2 * simulated_s(1); }));
}

TEST(Unequal, EstimatesWithTheConfiguredSlowdown) {
  SessionConfig config = slowed({1, 2});
  config.estimate = true;
  Session session(config);
  const TrialPlan plan = session.plan(session.submit(trial_with_lanes(2)));
  EXPECT_EQ(plan.lane_groups, (std::vector<int>{8, 4}));
}

TEST(Link, SlowsCopiesAndChangesNoBit) {
  SessionConfig config = session_of(1, smallest_budget(tiny_trial()));
  const RunResult direct = train(config, tiny_trial());
  config.devices[0].imitate.link_bytes_per_s = 100_MiB;
  Session session(config);
  session.submit(tiny_trial());
  const RunResult simulated = session.simulate();
  session.run();
  const RunResult linked = session.result();
  for (const RunResult& result : {simulated, linked}) {
    const auto bytes = static_cast<double>(result.h2d_bytes + result.d2h_bytes);
    EXPECT_GT(result.copy_s, 0.9 * bytes / static_cast<double>(100_MiB));
  }
  expect_same_bits(linked.trials[0], direct.trials[0]);
}

TEST(Link, RefusesToBeTooSlow) {
  SessionConfig config = session_of(2, kAmple);
  config.devices[1].imitate.link_bytes_per_s = 1;
  EXPECT_EQ(thrown<ConfigError>([&] { Session session(config); }).field, "devices[1].imitate.link");
}

TEST(Pilot, TimesALayerOnEachKindOfDeviceOnce) {
  const TemporaryFolder folder;
  const auto quiet = [] { return 0.0; };
  const auto file = folder / "pilot.json";
  const auto model = make_gpt(tiny_gpt(), 2);
  const std::shared_ptr<Device> slow = make_cpu_device("slow", kPage, {.slowdown = 8});
  const std::shared_ptr<Device> fast = make_cpu_device("fast", kPage);
  const auto backward_s = [&](const std::vector<LayerTimes>& times, std::size_t kind) {
    double sum_s = 0;
    for (const LayerTimes& layer : times) sum_s += layer.backward_s[kind];
    return sum_s;
  };
  std::map<std::string, std::vector<LayerTimes>> times;
  EXPECT_TRUE(holds_once_in_ten([&] {
    std::filesystem::remove(file);
    Pilot pilot(file, quiet);
    pilot.measure(*model);
    times = pilot.measure_on({{"fast", fast}, {"slow", slow}}, *model);
    return backward_s(times["fast"], 0) < backward_s(times["fast"], 1) &&
           backward_s(times["fast"], 1) < backward_s(times["fast"], 2) &&
           backward_s(times["slow"], 2) > 3 * backward_s(times["fast"], 2);
  }));
  for (const LayerTimes& layer : times["fast"]) EXPECT_GT(layer.forward_s[0], 0);
  const auto again = Pilot(file, quiet).measure_on({{"slow", fast}}, *model);
  EXPECT_EQ(again.at("slow"), times["slow"]) << "known by its kind";
  EXPECT_NE(Pilot().measure_on({{"fast", fast}}, *model).at("fast"), times["fast"])
      << "the control";
}

}  // namespace
}  // namespace spillway::testing
