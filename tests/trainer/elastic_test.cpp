#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "tests/support/thrown.h"
#include "tests/support/training_run.h"
#include "tests/support/wrapped_model.h"

/// The result of a trial does not depend on devices that come, go and fail while it trains, nor on
/// resizes.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

/// A tiny GPT with dropout, for four lanes at most, clipped, evaluated in between.
TrialConfig elastic_trial(int lanes = 4) {
  TrialConfig trial = tiny_trial();
  trial.train.lanes = lanes;
  trial.train.max_lanes = 4;
  return trial;
}

SessionConfig with_faults(SessionConfig config, const std::map<std::size_t, DeviceFault>& faults) {
  for (const auto& [device, fault] : faults) config.devices[device].fault = fault;
  return config;
}

/// Lets the layers of a step compute once that is allowed.
class Lockstep {
 public:
  void allow(std::int64_t step) {
    {
      const std::lock_guard lock(mutex_);
      allowed_ = std::max(allowed_, step);
    }
    changed_.notify_all();
  }
  void wait_for(std::int64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t allowed_ = 0;
};

/// A run, watched from another thread, which may change it at each event.
class Watched {
 public:
  explicit Watched(const SessionConfig& config) : session(config) {}

  /// A trial whose steps begin once what came before has been reacted to.
  JobId submit_in_lockstep(const TrialConfig& trial) {
    return session.submit(with_before(trial, [lockstep = lockstep_](LayerContext& context) {
      if (context.training) lockstep->wait_for(context.random.step);
    }));
  }

  void run(const std::function<void(const SessionEvent&)>& react = {}) {
    auto running = std::async(std::launch::async, [&] { session.run(); });
    for (bool last = false; !last;) {
      last = running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      for (const auto& event : session.poll(events.size(), last ? 0 : 0.05)) {
        events.push_back(event);
        if (react) react(event);
        lockstep_->allow(event.step);
      }
    }
    running.get();
    result = session.result();
  }

  std::vector<SessionEvent> all(Kind kind) const { return all(events, kind); }
  /// Blocks until the run has had so many, reacted to or not.
  void await(Kind kind, std::size_t number) const {
    for (;;) {
      const auto until_now = session.poll(0, 0);
      if (all(until_now, kind).size() >= number) return;
      session.poll(until_now.size(), 10);
    }
  }

  Session session;
  std::vector<SessionEvent> events;
  RunResult result;

 private:
  static std::vector<SessionEvent> all(const std::vector<SessionEvent>& events, Kind kind) {
    std::vector<SessionEvent> found;
    for (const auto& event : events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }

  const std::shared_ptr<Lockstep> lockstep_ = std::make_shared<Lockstep>();
};

std::vector<int> lanes_of(const Watched& run) {
  std::vector<int> lanes;
  for (const auto& event : run.all(Kind::resized)) lanes.push_back(event.lanes);
  return lanes;
}

const TrialResult& alone() {
  static const RunResult result = train(session_of(1, kAmple), elastic_trial(1));
  return result.trials[0];
}

/// Devices 4 -> 2 -> 1 -> 3, in the middle of a run: resident, and at the tightest budget.
TEST(Elastic, APathOverDevicesHasTheBitsOfOne) {
  for (const bool ample : {true, false}) {
    const Bytes budget = ample ? kAmple : smallest_budget(elastic_trial());
    Watched run(session_of(4, budget));
    const JobId trial = run.submit_in_lockstep(elastic_trial());
    run.run([&](const SessionEvent& event) {
      if (event.kind != Kind::step) return;
      if (event.step == 4) {
        run.session.remove_device(3);
        run.session.remove_device(1);
      }
      if (event.step == 8) run.session.remove_device(0);
      if (event.step == 11) {
        EXPECT_EQ(run.session.add_device({.memory = budget}), 4);
        EXPECT_EQ(run.session.add_device({.memory = budget}), 5);
        run.await(Kind::joined, 2);
      }
    });
    expect_same_bits(run.result.trials[0], alone());
    expect_within_budgets(run.result);
    EXPECT_EQ(lanes_of(run), (std::vector{2, 1, 3}));
    EXPECT_EQ(run.all(Kind::left).size(), 3u);
    EXPECT_EQ(run.all(Kind::joined).size(), 2u);
    EXPECT_EQ(run.all(Kind::redone).size(), 0u);
    EXPECT_EQ(run.result.devices.size(), 6u);
    EXPECT_EQ(run.session.plan(trial).num_shards > 1, !ample);
  }
}

TEST(Elastic, ResizesHaveTheBitsOfOneDevice) {
  Watched run(session_of(4, kAmple));
  const JobId trial = run.submit_in_lockstep(elastic_trial());
  const std::map<std::int64_t, int> path{{3, 2}, {6, 1}, {9, 3}, {12, 4}};
  run.run([&](const SessionEvent& event) {
    const auto next = path.find(event.step);
    if (event.kind == Kind::step && next != path.end()) run.session.resize(trial, next->second);
  });
  expect_same_bits(run.result.trials[0], alone());
  EXPECT_EQ(lanes_of(run), (std::vector{2, 1, 3, 4}));
  EXPECT_EQ(run.result.trials[0].lanes, 4);
  for (const DeviceResult& device : run.result.devices) EXPECT_GT(device.ops, 0u);
}

/// A device fails or hangs at a seeded moment; the open step is computed again without it.
TEST(Elastic, ALostDeviceChangesNoBit) {
  std::mt19937 random(11);
  int redone = 0;
  for (int run_number = 0; run_number < 50; ++run_number) {
    const bool hangs = run_number % 10 == 9;
    const auto after_ops = std::uniform_int_distribution<std::uint64_t>(0, 60)(random);
    const auto device = std::uniform_int_distribution<std::size_t>(0, 3)(random);
    SCOPED_TRACE("device " + std::to_string(device) + " after " + std::to_string(after_ops));
    const bool ample = run_number % 2 == 0;
    SessionConfig config = with_faults(
        session_of(4, ample ? kAmple : smallest_budget(elastic_trial())),
        {{device, {hangs ? DeviceFault::Kind::hang : DeviceFault::Kind::fail, after_ops}}});
    config.device_timeout_s = 3;
    Watched run(config);
    run.session.submit(elastic_trial());
    run.run();
    expect_same_bits(run.result.trials[0], alone());
    const auto lost = run.all(Kind::lost);
    if (!lost.empty()) {
      EXPECT_EQ(lost[0].device, static_cast<int>(device));
      const auto steps =
          run.all(Kind::step);  // the resize takes the commit after next at the latest
      const bool has_time = steps[steps.size() - 2].sequence > lost[0].sequence;
      EXPECT_TRUE(!has_time || run.result.trials[0].lanes == 3);
    }
    redone += static_cast<int>(run.all(Kind::redone).size());
  }
  EXPECT_GE(redone, 25);
}

TEST(Elastic, TwoLostDevicesAndCompanyChangeNoBit) {
  const SessionConfig config =
      with_faults(session_of(3, smallest_budget(elastic_trial())),
                  {{0, {DeviceFault::Kind::fail, 25}}, {2, {DeviceFault::Kind::fail, 70}}});
  Watched run(config);
  run.session.submit(elastic_trial(3));
  TrialConfig other = elastic_trial(1);
  other.train.seed = 99;
  run.session.submit(other);
  run.run();
  const RunResult other_alone = train(session_of(1, kAmple), other);
  EXPECT_EQ(run.all(Kind::lost).size(), 2u);
  EXPECT_EQ(run.result.trials[0].lanes, 1);
  expect_same_bits(run.result.trials[0], alone());
  expect_same_bits(run.result.trials[1], other_alone.trials[0]);
}

TEST(Elastic, AShrunkDeviceGoesOnWithWhatItHas) {
  const SessionConfig config =
      with_faults(session_of(2, kAmple), {{1, {DeviceFault::Kind::shrink, 20}}});
  Watched run(config);
  run.session.submit(elastic_trial(2));
  run.run();
  expect_same_bits(run.result.trials[0], alone());
  expect_within_budgets(run.result);
  ASSERT_EQ(run.all(Kind::left).size(), 1u);
  EXPECT_EQ(run.all(Kind::left)[0].reason, "its budget shrank to 32.00 MiB");
  ASSERT_EQ(run.result.devices.size(), 3u);
  EXPECT_EQ(run.result.devices[2].budget_bytes, kAmple / 2);
}

/// The trial is cut again, where the devices that are left are smaller.
TEST(Elastic, SmallerDevicesTakeOver) {
  const Bytes least = smallest_budget(elastic_trial());
  Watched run(session_of(1, kAmple));
  run.submit_in_lockstep(elastic_trial(1));
  run.run([&](const SessionEvent& event) {
    if (event.kind != Kind::step || event.step != 5) return;
    run.session.add_device({.memory = least * 3 / 2});
    run.session.remove_device(0);
  });
  expect_same_bits(run.result.trials[0], alone());
  EXPECT_GT(run.result.trials[0].num_shards, 1);
  EXPECT_GT(run.result.devices[1].ops, 0u);
}

TEST(Elastic, WithoutADeviceARunPausesAndSaysSo) {
  Watched run(session_of(1, kAmple));
  run.submit_in_lockstep(elastic_trial(1));
  bool waited = false;
  run.run([&](const SessionEvent& event) {
    if (event.kind == Kind::step && event.step == 5) run.session.remove_device(0);
    if (event.kind != Kind::state || event.state != TrialState::waiting) return;
    waited = true;
    EXPECT_NE(event.reason.find("no device is left that can run it; add one of at least"),
              std::string::npos);
    run.session.add_device({.memory = kAmple});
  });
  EXPECT_TRUE(waited);
  expect_same_bits(run.result.trials[0], alone());
  EXPECT_EQ(run.result.trials[0].reason, "");
}

TEST(Elastic, WithoutADeviceARunCanBeStopped) {
  Watched run(session_of(1, kAmple));
  run.submit_in_lockstep(elastic_trial(1));
  run.run([&](const SessionEvent& event) {
    if (event.kind == Kind::step && event.step == 5) run.session.remove_device(0);
    if (event.kind == Kind::left) run.session.stop();
  });
  EXPECT_EQ(run.result.trials[0].state, TrialState::stopped);
}

/// Counts how often a layer was asked for a virtual node of a step before.
class Attempts {
 public:
  std::uint64_t next(const RandomKey& key) {
    const std::lock_guard lock(mutex_);
    return attempts_[{key.step, key.vn, key.stream}]++;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint64_t> attempts_;
};

/// What a trainer does that draws anew when it computes something again: every attempt shows.
/// Resident, so that nothing is computed twice but for that; the pilot asks for step 0.
TrialConfig drawing_anew() {
  return with_before(elastic_trial(),
                     [attempts = std::make_shared<Attempts>()](LayerContext& context) {
                       if (context.training && context.random.step > 0) {
                         context.random.seed += attempts->next(context.random);
                       }
                     });
}

TEST(ElasticControl, ARedoneStepThatDrawsAnewHasOtherBits) {
  const RunResult whole = train(session_of(4, kAmple), drawing_anew());
  expect_same_bits(whole.trials[0], alone());
  Watched run(with_faults(session_of(4, kAmple), {{2, {DeviceFault::Kind::fail, 10}}}));
  run.session.submit(drawing_anew());
  run.run();
  EXPECT_EQ(run.all(Kind::redone).size(), 1u);
  expect_other_bits(run.result.trials[0], alone());
}

TEST(Elastic, LanesTakeWholeGroupsAlsoOfTheDefault) {
  Session session(session_of(9, kAmple));
  TrialConfig trial = tiny_trial();
  trial.train.reduction_groups = 0;
  trial.train.lanes = 9;
  EXPECT_STREQ(thrown<ConfigError>([&] { session.submit(trial); }).what(),
               "train.lanes: is 9, above train.reduction_groups 8; a lane takes whole groups");
  trial.train.lanes = 4;
  trial.train.max_lanes = 3;
  EXPECT_STREQ(thrown<ConfigError>([&] { session.submit(trial); }).what(),
               "train.max_lanes: is 3, below train.lanes 4");
}

/// Homes are reserved for what resizes need, and for no more where none may come.
TEST(Elastic, HostMemoryIsReservedForTheLanesThatMayCome) {
  const auto home_bytes = [](int max_lanes) {
    TrialConfig trial = elastic_trial(1);
    trial.train.max_lanes = max_lanes;
    Session session(session_of(2, kAmple));
    const JobId id = session.submit(trial);
    return session.plan(id).home_bytes;
  };
  const Bytes one = home_bytes(1);
  EXPECT_EQ(home_bytes(0), one);
  EXPECT_GT(home_bytes(2), one);
  EXPECT_GT(home_bytes(4), home_bytes(2));
}

TEST(Elastic, WhatCannotBeIsSaid) {
  Session session(session_of(2, kAmple));
  const JobId trial = session.submit(elastic_trial(1));
  const auto said = [](const auto& call) { return std::string(thrown<ConfigError>(call).what()); };
  EXPECT_EQ(said([&] { session.resize(trial, 0); }).find("train.lanes: is 0, must be 1 to 4"), 0u);
  EXPECT_EQ(said([&] { session.resize(trial, 5); }).find("train.lanes: is 5, must be 1 to 4"), 0u);
  EXPECT_EQ(
      said([&] { session.resize(trial, 3); }),
      "train.lanes: is 3, but 2 devices can run the trial; a device runs one lane of a trial");
  EXPECT_STREQ(thrown<Error>([&] { session.resize(JobId(1), 1); }).what(),
               "there is no trial 1; there are 1");
  EXPECT_EQ(said([&] { session.remove_device(2); }),
            "devices: have no number 2; they are numbered from 0 to 1");
  EXPECT_EQ(said([&] { session.remove_device(-1); }),
            "devices: have no number -1; they are numbered from 0 to 1");
  session.remove_device(1);
  EXPECT_EQ(said([&] { session.remove_device(1); }), "devices: number 1 has left already");
  EXPECT_EQ(said([&] { session.add_device({.memory = 1}); }).find("devices[2].memory: is 1"), 0u);
  EXPECT_EQ(session.add_device({.memory = kAmple}), 2);
  session.resize(trial, 2);
  session.run();
  expect_same_bits(session.result().trials[0], alone());
  EXPECT_EQ(session.result().devices[1].ops, 0u);
  session.resize(trial, 1);  // it has ended
}

}  // namespace
}  // namespace spillway::testing
