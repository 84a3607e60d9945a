#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"

/// The result of a trial does not depend on devices that join, leave or fail during training, nor
/// on resizes.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

/// A tiny GPT with dropout, for at most four lanes, clipped, with intermediate evaluations.
TrialConfig elastic_trial(int lanes = 4) {
  TrialConfig trial = tiny_trial();
  trial.train.data_parallel = lanes;
  trial.train.max_data_parallel = 4;
  return trial;
}

const TrialResult& trained_alone() {
  static const RunResult result = train(session_of(1, kAmple), elastic_trial(1));
  return result.trials[0];
}

TEST(Elastic, KeepsTheBitsDespiteLostDevicesAndOtherTrials) {
  const SessionConfig config =
      with_faults(session_of(3, smallest_budget(elastic_trial())),
                  {{0, {DeviceFault::Kind::fail, 25}}, {2, {DeviceFault::Kind::fail, 70}}});
  WatchedSession run(config);
  run.session.submit(elastic_trial(3));
  TrialConfig other = elastic_trial(1);
  other.train.seed = 99;
  run.session.submit(other);
  run.run();
  const RunResult other_alone = train(session_of(1, kAmple), other);
  EXPECT_EQ(run.all(Kind::lost).size(), 2u);
  EXPECT_EQ(run.result.trials[0].lanes, 1);
  expect_same_bits(run.result.trials[0], trained_alone());
  expect_same_bits(run.result.trials[1], other_alone.trials[0]);
}

TEST(Elastic, ContinuesOnAShrunkDevice) {
  const SessionConfig config =
      with_faults(session_of(2, kAmple), {{1, {DeviceFault::Kind::shrink, 20}}});
  WatchedSession run(config);
  run.session.submit(elastic_trial(2));
  run.run();
  expect_same_bits(run.result.trials[0], trained_alone());
  expect_within_budgets(run.result);
  ASSERT_EQ(run.all(Kind::left).size(), 1u);
  EXPECT_EQ(run.all(Kind::left)[0].reason, "its budget shrank to 32.00 MiB");
  ASSERT_EQ(run.result.devices.size(), 3u);
  EXPECT_EQ(run.result.devices[2].budget_bytes, kAmple / 2);
}

/// The trial is cut again if the remaining devices are smaller.
TEST(Elastic, ContinuesOnSmallerDevices) {
  const Bytes least = smallest_budget(elastic_trial());
  WatchedSession run(session_of(1, kAmple));
  run.submit_in_lockstep(elastic_trial(1));
  run.run([&](const SessionEvent& event) {
    if (event.kind != Kind::step || event.step != 5) return;
    run.session.add_device({.memory = least * 3 / 2});
    run.session.remove_device(0);
  });
  expect_same_bits(run.result.trials[0], trained_alone());
  EXPECT_GT(run.result.trials[0].num_shards, 1);
  EXPECT_GT(run.result.devices[1].ops, 0u);
}

TEST(Elastic, ReportsAPauseWithoutDevices) {
  WatchedSession run(session_of(1, kAmple));
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
  expect_same_bits(run.result.trials[0], trained_alone());
  EXPECT_EQ(run.result.trials[0].reason, "");
}

TEST(Elastic, StopsWithoutDevices) {
  WatchedSession run(session_of(1, kAmple));
  run.submit_in_lockstep(elastic_trial(1));
  run.run([&](const SessionEvent& event) {
    if (event.kind == Kind::step && event.step == 5) run.session.remove_device(0);
    if (event.kind == Kind::left) run.session.stop();
  });
  EXPECT_EQ(run.result.trials[0].state, TrialState::stopped);
}

/// Counts how often a layer gets a virtual node of an earlier step.
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

/// A trainer that draws anew when it repeats a computation: every attempt shows. Resident, so that
/// nothing else is computed twice; the pilot asks for step 0.
TrialConfig drawing_anew() {
  return with_before(elastic_trial(),
                     [attempts = std::make_shared<Attempts>()](LayerContext& context) {
                       if (context.training && context.random.step > 0) {
                         context.random.seed += attempts->next(context.random);
                       }
                     });
}

TEST(ElasticControl, DiffersIfARepeatedStepDrawsAnew) {
  const RunResult whole = train(session_of(4, kAmple), drawing_anew());
  expect_same_bits(whole.trials[0], trained_alone());
  WatchedSession run(with_faults(session_of(4, kAmple), {{2, {DeviceFault::Kind::fail, 10}}}));
  run.session.submit(drawing_anew());
  run.run();
  EXPECT_EQ(run.all(Kind::redone).size(), 1u);
  expect_other_bits(run.result.trials[0], trained_alone());
}

TEST(Elastic, GivesLanesWholeGroupsByDefault) {
  Session session(session_of(9, kAmple));
  TrialConfig trial = tiny_trial();
  trial.train.reduction_groups = 0;
  trial.train.data_parallel = 9;
  EXPECT_STREQ(thrown<ConfigError>([&] { session.submit(trial); }).what(),
               "train.data_parallel: is 9, above train.reduction_groups 8; a device takes whole "
               "reduction groups");
  trial.train.data_parallel = 4;
  trial.train.max_data_parallel = 3;
  EXPECT_STREQ(thrown<ConfigError>([&] { session.submit(trial); }).what(),
               "train.max_data_parallel: is 3, below train.data_parallel 4");
}

/// Homes are reserved for possible resizes, and for no more if none are possible.
TEST(Elastic, ReservesHostMemoryForMoreLanes) {
  const auto home_bytes = [](int max_lanes) {
    TrialConfig trial = elastic_trial(1);
    trial.train.max_data_parallel = max_lanes;
    Session session(session_of(2, kAmple));
    const JobId id = session.submit(trial);
    return session.plan(id).home_bytes;
  };
  const Bytes one = home_bytes(1);
  EXPECT_EQ(home_bytes(0), one);
  EXPECT_GT(home_bytes(2), one);
  EXPECT_GT(home_bytes(4), home_bytes(2));
}

TEST(Elastic, ReportsImpossibleRequests) {
  Session session(session_of(2, kAmple));
  const JobId trial = session.submit(elastic_trial(1));
  const auto said = [](const auto& call) { return std::string(thrown<ConfigError>(call).what()); };
  EXPECT_EQ(said([&] {
              session.resize(trial, 0);
            }).find("train.data_parallel: is 0, must be from 1 to 4"),
            0u);
  EXPECT_EQ(said([&] {
              session.resize(trial, 5);
            }).find("train.data_parallel: is 5, must be from 1 to 4"),
            0u);
  EXPECT_EQ(said([&] { session.resize(trial, 3); }),
            "train.data_parallel: is 3, but only 2 devices can run the trial");
  EXPECT_STREQ(thrown<Error>([&] { session.resize(JobId(1), 1); }).what(),
               "there is no trial 1; the session has 1");
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
  expect_same_bits(session.result().trials[0], trained_alone());
  EXPECT_EQ(session.result().devices[1].ops, 0u);
  session.resize(trial, 1);  // it has ended
}

}  // namespace
}  // namespace spillway::testing
