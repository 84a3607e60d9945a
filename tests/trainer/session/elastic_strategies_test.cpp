#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"

/// Trials with a strategy for each number of devices keep their bits while devices come and go.
namespace spillway::testing {
namespace {

using Kind = SessionEvent::Kind;

const StrategyConfig kPipeline{{{{"*"}, {1}}, {{"embed", "h.0.*"}, {0}}}};
const StrategyConfig kMixed{{{{"*"}, {0, 1, 2}}, {{"h.0.*"}, {2}}, {{"head"}, {0, 1}}}};

TrialConfig placed_trial(int devices) {
  TrialConfig trial = tiny_trial();
  trial.train.data_parallel = devices;
  trial.train.strategies = {{2, kPipeline}, {3, kMixed}};
  return trial;
}

const TrialResult& placed_alone() {
  static const RunResult result = train(session_of(1, kAmple), tiny_trial());
  return result.trials[0];
}

TEST(ElasticStrategies, KeepTheBitsOverResizes) {
  WatchedSession run(session_of(3, kAmple));
  TrialConfig trial = placed_trial(2);
  run.submit_in_lockstep(trial);
  const std::map<std::int64_t, int> devices{{3, 3}, {6, 1}, {9, 2}, {12, 3}};
  run.run([&](const SessionEvent& event) {
    const auto next = devices.find(event.step);
    if (event.kind == Kind::step && next != devices.end())
      run.session.resize(JobId(0), next->second);
  });
  EXPECT_EQ(run.lanes_of(JobId(0)), (std::vector{3, 1, 2, 3}));
  EXPECT_GT(run.result.trials[0].num_shards, 1) << "the stages of the strategy";
  expect_same_bits(run.result.trials[0], placed_alone());
  expect_within_budgets(run.result);
}

TEST(ElasticStrategies, TakeTheOneForTheDevicesThatAreLeft) {
  WatchedSession run(with_faults(session_of(3, kAmple), {{1, {DeviceFault::Kind::fail, 40}}}));
  run.session.submit(placed_trial(3));
  run.run();
  EXPECT_EQ(run.lanes_of(JobId(0)), std::vector{2});
  EXPECT_EQ(run.result.trials[0].num_shards, 2);
  expect_same_bits(run.result.trials[0], placed_alone());
}

/// Between two numbers with strategies the lower one counts, unless the user asks for another.
TEST(ElasticStrategies, SkipNumbersInBetween) {
  const auto strategies_for_2_and_4 = [](int devices) {
    TrialConfig trial = placed_trial(devices);
    trial.train.strategies.erase(3);
    trial.train.strategies[4] = {{{{"*"}, {0, 1, 2, 3}}, {{"h.0.*"}, {3}}}};
    return trial;
  };
  WatchedSession run(with_faults(session_of(4, kAmple), {{1, {DeviceFault::Kind::fail, 40}}}));
  run.session.submit(strategies_for_2_and_4(4));
  run.run();
  EXPECT_EQ(run.lanes_of(JobId(0)), std::vector{2});
  expect_same_bits(run.result.trials[0], placed_alone());
  WatchedSession asked(session_of(4, kAmple));
  asked.submit_in_lockstep(strategies_for_2_and_4(4));
  asked.run([&](const SessionEvent& event) {
    if (event.kind == Kind::step && event.step == 3) asked.session.resize(JobId(0), 3);
  });
  EXPECT_EQ(asked.lanes_of(JobId(0)), std::vector{3});
  expect_same_bits(asked.result.trials[0], placed_alone());
  Session session(session_of(4, kAmple));
  EXPECT_EQ(session.plan(session.submit(strategies_for_2_and_4(3))).lanes, 3);
  const TrainConfig train = strategies_for_2_and_4(1).train;
  for (const int devices : {1, 2, 4, 5}) EXPECT_FALSE(train.skips(devices)) << devices;
  EXPECT_TRUE(train.skips(3));
  EXPECT_FALSE(TrainConfig().skips(3));
}

TEST(ElasticStrategies, MayBeForAsManyDevicesAsThereAreGroups) {
  const auto problem_of = [](const TrialConfig& trial) {
    return thrown<ConfigError>([&] { trial.validate(); }).problem;
  };
  TrialConfig trial = placed_trial(1);
  trial.validate();
  trial.train.strategies = {{3, kPipeline}};
  EXPECT_EQ(problem_of(trial), "for 3 devices has 2 tracks; name one track for each device");
  trial.train.strategies = {{2, kPipeline}};
  trial.train.reduction_groups = 1;
  EXPECT_EQ(problem_of(trial), "for 2 devices needs train.reduction_groups of at least 2");
  trial = placed_trial(1);
  trial.train.strategies[2].place[1].layers = {"h.9.*"};
  EXPECT_EQ(problem_of(trial).find("for 2 devices is h.9.*, which matches no layer"), 0u)
      << problem_of(trial);
  trial = placed_trial(2);
  trial.train.lane_groups = {4, 4};
  trial.train.strategies.erase(3);
  EXPECT_EQ(problem_of(trial), "for 2 devices cannot be used with lane_groups; leave them out");
  trial = placed_trial(1);
  trial.train.strategy = kPipeline;
  EXPECT_NE(problem_of(trial).find("cannot be used with"), std::string::npos);
  Session session(session_of(4, kAmple));
  trial = placed_trial(2);
  trial.train.max_data_parallel = 2;  // below the largest number with a strategy
  session.submit(trial);
  const JobId id = session.submit(placed_trial(2));
  EXPECT_STREQ(thrown<ConfigError>([&] { session.resize(id, 4); }).what(),
               "train.data_parallel: is 4, must be from 1 to 3; train.max_data_parallel (at most "
               "train.reduction_groups) sets the maximum");
}

}  // namespace
}  // namespace spillway::testing
