#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"

/// Sharing and rules change the lanes of trials, but no bit.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

/// A run and its events. It is stopped after the event that is its `last`.
struct SharedRun {
  SharedRun(const SessionConfig& config, const std::vector<TrialConfig>& trials,
            const std::function<bool(const SessionEvent&)>& last = {})
      : watched(config) {
    for (const TrialConfig& trial : trials) watched.session.submit(trial);
    watched.run([&](const SessionEvent& event) {
      if (last && last(event)) watched.session.stop();
    });
  }

  std::vector<SessionEvent> of(std::size_t trial, Kind kind) const {
    std::vector<SessionEvent> found;
    for (const auto& event : watched.events) {
      if (event.kind == kind && event.trial == JobId(trial)) found.push_back(event);
    }
    return found;
  }
  std::vector<int> lanes_of(std::size_t trial) const { return watched.lanes_of(JobId(trial)); }
  std::vector<std::string> reasons_of(std::size_t trial, Kind kind) const {
    std::vector<std::string> reasons;
    for (const auto& event : of(trial, kind)) reasons.push_back(event.reason);
    return reasons;
  }

  WatchedSession watched;
  const RunResult& result = watched.result;
};

SessionConfig shared(SharingKind sharing, int num_devices) {
  SessionConfig config = session_of(num_devices, kAmple);
  config.sharing = sharing;
  return config;
}

TrialConfig trial_of(std::uint64_t seed, int lanes, std::int64_t steps = 20, int priority = 1) {
  TrialConfig trial = tiny_trial("seed " + std::to_string(seed));
  trial.train.seed = seed;
  trial.train.data_parallel = lanes;
  trial.train.max_steps = steps;
  trial.train.priority = priority;
  return trial;
}

/// Long enough to outlive any other trial, so its run has to be stopped.
TrialConfig endless(TrialConfig trial) {
  trial.train.max_steps = 1'000'000;
  trial.train.lr_scheduler_type = LrSchedulerType::constant;
  trial.train.warmup_ratio = 0;
  return trial;
}

/// True when a trial has this number of lanes.
auto has_lanes(std::size_t trial, int lanes) {
  return [=](const SessionEvent& event) {
    return event.kind == Kind::resized && event.trial == JobId(trial) && event.lanes == lanes;
  };
}

/// On one device, alone. For a stopped trial, the losses up to its stop.
void expect_bits_of_one_device(const SharedRun& run, const std::vector<TrialConfig>& trials) {
  for (std::size_t t = 0; t < trials.size(); ++t) {
    TrialConfig alone = trials[t];
    alone.train.data_parallel = 1;
    alone.train.max_data_parallel = 0;
    alone.train.lane_groups.clear();
    alone.train.autoscale.clear();
    const TrialResult& shared = run.result.trials[t];
    const bool stopped = shared.state == TrialState::stopped;
    if (stopped) alone.train.max_steps = shared.steps;
    const TrialResult expected = train(session_of(1, kAmple), alone).trials[0];
    if (!stopped) expect_same_bits(shared, expected);
    EXPECT_EQ(shared.losses, expected.losses);
  }
}

TEST(Shares, GivesByPriorityUnderWfs) {
  const std::vector trials{endless(trial_of(1, 2)), trial_of(2, kAutoDataParallel, 20, 5)};
  const SharedRun run(shared(SharingKind::wfs, 3), trials, has_lanes(0, 2));
  EXPECT_EQ(run.lanes_of(0), (std::vector{1, 2})) << "the other one ends first";
  EXPECT_EQ(run.lanes_of(1), std::vector{2});
  EXPECT_EQ(run.reasons_of(0, Kind::resized), (std::vector<std::string>{"wfs", "wfs"}));
  EXPECT_EQ(run.result.trials[0].lanes, 2);
  for (const DeviceResult& device : run.result.devices) EXPECT_GT(device.ops, 0u);
  expect_bits_of_one_device(run, trials);
}

TEST(Shares, LetsNoTrialWaitUnderFill) {
  const std::vector trials{trial_of(1, 2), trial_of(2, 2), endless(trial_of(3, 2))};
  const SharedRun run(shared(SharingKind::fill, 2), trials, has_lanes(2, 2));
  for (std::size_t t = 0; t < 3; ++t) EXPECT_EQ(run.lanes_of(t).front(), 1);
  EXPECT_EQ(run.lanes_of(2).back(), 2) << "alone in the end";
  expect_bits_of_one_device(run, trials);
}

/// With four groups, a third device would have nothing to do.
TEST(Shares, KnowsFromTheStartHowFastLanesAre) {
  SessionConfig config = shared(SharingKind::fill, 4);
  for (DeviceConfig& device : config.devices) device.imitate.slowdown = 10;
  std::vector trials{endless(trial_of(1, 1)), trial_of(2, 1, 10)};
  for (TrialConfig& trial : trials) trial.train.reduction_groups = 4;
  const SharedRun run(config, trials, has_lanes(0, 4));
  EXPECT_EQ(run.lanes_of(0), (std::vector{2, 4})) << "the longer trial, then alone";
  EXPECT_EQ(run.lanes_of(1), std::vector{2});
  expect_bits_of_one_device(run, trials);
}

/// Two lanes load all weights each; the stages of a pipeline share them.
TEST(Shares, UsesTheStrategyForTheDevicesOfATrial) {
  SessionConfig config = shared(SharingKind::fill, 2);
  for (DeviceConfig& device : config.devices) device.imitate.link_bytes_per_s = 1_MiB;
  TrialConfig trial = trial_of(1, 1);
  const auto simulated = [&] {
    Session session(config);
    session.submit(trial);
    return session.simulate();
  };
  const RunResult with_lanes = simulated();
  trial.train.strategies = {{2, {{{{"*"}, {1}}, {{"embed", "h.0.*"}, {0}}}}}};
  const RunResult placed = simulated();
  EXPECT_LT(placed.h2d_weight_bytes, with_lanes.h2d_weight_bytes * 3 / 4);
  EXPECT_LT(placed.wall_s, with_lanes.wall_s);
}

TEST(Shares, ReportsWaitingTrials) {
  const std::vector trials{trial_of(1, 2, 20), trial_of(2, 2, 20, 9)};
  const SharedRun run(shared(SharingKind::priority, 2), trials);
  const auto states = run.of(0, Kind::state);
  ASSERT_EQ(states.size(), 3u);
  EXPECT_EQ(states[0].state, TrialState::waiting);
  EXPECT_EQ(states[0].reason, "other trials use the devices (scheduling.sharing: priority)");
  EXPECT_EQ(states[1].state, TrialState::running);
  EXPECT_GT(states[1].sequence, run.of(1, Kind::state).back().sequence);
  EXPECT_EQ(run.result.trials[0].reason, "");
  expect_bits_of_one_device(run, trials);
}

TEST(Shares, StartsSharingOnceHomesAreReserved) {
  SessionConfig config = shared(SharingKind::wfs, 2);
  Session plan(config);
  config.host_memory = plan.plan(plan.submit(trial_of(1, 2))).home_bytes;
  const std::vector trials{trial_of(1, 2), trial_of(2, 2, 20, 50)};
  const SharedRun run(config, trials);
  EXPECT_EQ(run.lanes_of(0), std::vector{2});
  EXPECT_EQ(run.lanes_of(1), std::vector{2});
  expect_bits_of_one_device(run, trials);
}

/// A device fails; other trials take over the share of its trial.
TEST(Shares, PausesTheLowestPriorityAfterALoss) {
  SessionConfig config = shared(SharingKind::wfs, 2);
  config.devices[1].imitate.fault = {DeviceFault::Kind::fail, 100};
  const std::vector trials{trial_of(1, 2, 40, 1), trial_of(2, 2, 40, 2)};
  const SharedRun run(config, trials);
  const auto waited = [&](std::size_t trial) {
    return std::ranges::count(run.of(trial, Kind::state), TrialState::waiting,
                              &SessionEvent::state);
  };
  EXPECT_EQ(waited(0), 1);
  EXPECT_EQ(waited(1), 0);
  expect_bits_of_one_device(run, trials);
}

/// Its utility is zero for any lanes, so it tries fewer and fewer.
const AutoscaleRule kWalksDown{.rule = RuleKind::linear, .params = {{"value", 0}}};

TEST(Autoscaled, TakesLanesBackByARule) {
  TrialConfig trial = trial_of(1, kAutoDataParallel, 60);
  trial.train.autoscale = {kWalksDown};
  const SharedRun run(session_of(3, kAmple), {trial});
  EXPECT_EQ(run.lanes_of(0), (std::vector{2, 1}));
  EXPECT_EQ(run.reasons_of(0, Kind::resized),
            (std::vector<std::string>{"linear: tries 2 devices", "linear: tries 1 device"}));
  EXPECT_EQ(run.result.trials[0].lanes, 1);
  expect_bits_of_one_device(run, {trial});
}

TEST(Autoscaled, BeginsWithAllDevicesAndTriesFewerUnderAuto) {
  const TrialConfig trial = trial_of(1, kAutoDataParallel, 40);
  const SharedRun run(session_of(2, kAmple), {trial});
  EXPECT_EQ(run.watched.session.plan(JobId(0)).lanes, 2);
  ASSERT_FALSE(run.lanes_of(0).empty());
  EXPECT_EQ(run.lanes_of(0)[0], 1);
  EXPECT_EQ(run.reasons_of(0, Kind::resized)[0], "throughput: tries 1 device");
  expect_bits_of_one_device(run, {trial});
}

TEST(Autoscaled, RespectsGroupsAndMaximumUnderAuto) {
  TrialConfig trial = trial_of(1, kAutoDataParallel);
  const auto lanes = [&] {
    Session session(session_of(4, kAmple));
    return session.plan(session.submit(trial)).lanes;
  };
  EXPECT_EQ(lanes(), 4);
  trial.train.max_data_parallel = 3;
  EXPECT_EQ(lanes(), 3);
  trial.train.max_data_parallel = 0;
  trial.train.reduction_groups = 2;
  EXPECT_EQ(lanes(), 2);
}

TEST(Autoscaled, AvoidsAStraggler) {
  SessionConfig config = session_of(2, kAmple);
  config.devices[1].imitate.slowdown = 20;
  TrialConfig trial = trial_of(1, 2);
  trial.train.lane_groups = {4, 4};  // whatever that device is like
  trial.train.autoscale = {{.rule = RuleKind::straggler, .params = {{"share", 0.5}}}};
  const SharedRun run(config, {trial});
  EXPECT_EQ(run.lanes_of(0), std::vector{1});
  EXPECT_EQ(run.reasons_of(0, Kind::resized)[0], "straggler: avoids device 1");
  EXPECT_GT(run.result.devices[1].ops, 0u);
  EXPECT_LT(run.result.devices[1].ops, run.result.devices[0].ops / 2);
  expect_bits_of_one_device(run, {trial});
}

TEST(Autoscaled, ResizeOverridesRules) {
  TrialConfig trial = trial_of(1, kAutoDataParallel, 60);
  trial.train.autoscale = {kWalksDown};
  Session session(session_of(3, kAmple));
  const JobId id = session.submit(trial);
  session.resize(id, 2);
  session.run();
  std::vector<int> lanes;
  for (const auto& event : session.poll(0, 0)) {
    if (event.kind == Kind::resized) lanes.push_back(event.lanes);
  }
  EXPECT_EQ(lanes, std::vector<int>{});
  EXPECT_EQ(session.result().devices[2].ops, 0u);
}

TEST(Shares, SimulatesTheSame) {
  const std::vector trials{trial_of(1, 2), trial_of(2, 2, 20, 5)};
  const auto simulated = [&](SharingKind sharing) {
    Session session(shared(sharing, 2));
    for (const TrialConfig& trial : trials) session.submit(trial);
    return session.simulate();
  };
  const RunResult one_by_one = simulated(SharingKind::priority), wfs = simulated(SharingKind::wfs);
  const SharedRun run(shared(SharingKind::priority, 2), trials);
  EXPECT_EQ(one_by_one.h2d_weight_bytes, run.result.h2d_weight_bytes) << "lanes at all times";
  EXPECT_LT(wfs.h2d_weight_bytes, one_by_one.h2d_weight_bytes) << "a lane each";
  EXPECT_EQ(total(wfs, &DeviceResult::ops), total(one_by_one, &DeviceResult::ops));
}

TEST(Shares, FailsATrialWithoutAnyDevice) {
  SessionConfig config = session_of(1, kAmple);
  config.devices[0].imitate.fault = {DeviceFault::Kind::fail, 30};
  config.wait_for_devices = false;
  const SharedRun run(config, {trial_of(1, 1), trial_of(2, 1)});
  for (const TrialResult& trial : run.result.trials) {
    EXPECT_EQ(trial.state, TrialState::failed);
    EXPECT_TRUE(trial.reason.starts_with("no device is left that can run it; it needs one of"));
  }
}

TEST(Shares, ReportsImpossibleRequests) {
  const auto said = [](const auto& call) { return std::string(thrown<ConfigError>(call).what()); };
  Session session(session_of(1, kAmple));
  const auto said_of = [&](const auto& change) {
    TrialConfig trial = trial_of(1, 1);
    change(trial.train);
    return said([&] { session.submit(trial); });
  };
  EXPECT_EQ(said_of([](TrainConfig& train) { train.priority = 0; }),
            "train.priority: is 0, must be an integer from 1 to 100");
  EXPECT_EQ(said_of([](TrainConfig& train) { train.data_parallel = 2; }),
            "train.data_parallel: is 2, but only 1 device can run the trial");
}

}  // namespace
}  // namespace spillway::testing
