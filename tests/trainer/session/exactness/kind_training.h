#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/run/training_run.h"

/// Whole runs on devices of one kind with a dedicated activation pool, where several devices may
/// share a GPU: the same bits for every budget, number of devices and division into lanes. Each
/// kind of device instantiates it.
namespace spillway::testing {

class KindTraining : public ::testing::TestWithParam<DeviceKind> {
 protected:
  static SessionConfig devices_of(int devices, Bytes memory) {
    SessionConfig config = session_of(devices, memory);
    config.activation_share = 0.5;
    for (DeviceConfig& device : config.devices) device.kind = GetParam();
    return config;
  }

  static Bytes smallest(const TrialConfig& trial) {
    TrialConfig spilled = trial;
    spilled.train.order = OrderChoice::shard_major;
    Session session(devices_of(1, kAmple));
    return session.plan(session.submit(spilled)).smallest_budget_bytes;
  }

  /// Returns the largest number of shards tried.
  static int expect_same_bits_everywhere(const TrialConfig& trial);
};

inline int KindTraining::expect_same_bits_everywhere(const TrialConfig& trial) {
  const RunResult resident = train(devices_of(1, kAmple), trial);
  expect_within_budgets(resident);
  const Bytes least = smallest(trial);
  int most_shards = 1;
  for (const Bytes memory : {least, 2 * least}) {
    SCOPED_TRACE(memory);
    TrialConfig spilled = trial;
    spilled.train.order = OrderChoice::shard_major;
    const RunResult result = train(devices_of(1, memory), spilled);
    expect_same_bits(result.trials[0], resident.trials[0]);
    expect_within_budgets(result);
    most_shards = std::max(most_shards, result.trials[0].num_shards);
  }
  const int groups = trial.train.reduction_groups;
  for (const auto& lane_groups : {std::vector{groups - 1, 1}, {1, groups - 3, 2}}) {
    const auto lanes = static_cast<int>(lane_groups.size());
    SCOPED_TRACE(lanes);
    const RunResult result = train(devices_of(lanes, kAmple), with_lanes(trial, lane_groups));
    expect_same_bits(result.trials[0], resident.trials[0]);
  }
  TrialConfig other = trial;
  other.train.seed += 1;
  expect_other_bits(train(devices_of(1, kAmple), other).trials[0], resident.trials[0]);
  return most_shards;
}

TEST_P(KindTraining, KeepsTheBitsOfAGpt) {
  EXPECT_GT(expect_same_bits_everywhere(tiny_trial()), 1) << "it spilled";
}

TEST_P(KindTraining, KeepsTheBitsOfAResidualNetwork) {
  expect_same_bits_everywhere(resnet_trial());
}

TEST_P(KindTraining, KeepsTheBitsOfBf16) {
  TrialConfig trial = tiny_trial();
  trial.train.dtype = trial.train.gradient_dtype = FloatType::bf16;
  EXPECT_GT(expect_same_bits_everywhere(trial), 1) << "it spilled";
}

/// With running statistics and dropout, and an embedding.
TEST_P(KindTraining, KeepsTheBitsOfUserModules) {
  for (const int net : {1, 2}) {
    TrialConfig trial = net_trial(small_nets()[at(net)]);
    SCOPED_TRACE(trial.name);
    trial.train.virtual_nodes = trial.train.reduction_groups = 4;
    expect_same_bits_everywhere(trial);
  }
}

TEST_P(KindTraining, KeepsTheBitsOfTrialsThatShareIt) {
  TrialConfig second = tiny_trial("b");
  second.train.seed = 7;
  const RunResult alone = train(devices_of(1, kAmple), second);
  const RunResult both = train(devices_of(2, kAmple), {tiny_trial("a"), second});
  expect_same_bits(both.trials[1], alone.trials[0]);
}

/// Device kinds round differently, in the last digits.
TEST_P(KindTraining, AgreesWithTheCpu) {
  const RunResult here = train(devices_of(1, kAmple), tiny_trial());
  const RunResult on_cpu = train(session_of(1, kAmple), tiny_trial());
  ASSERT_EQ(here.trials[0].state, TrialState::done) << here.trials[0].reason;
  EXPECT_EQ(here.trials[0].losses.size(), on_cpu.trials[0].losses.size());
  EXPECT_LT(largest_difference(here.trials[0].losses, on_cpu.trials[0].losses), 1e-3);
}

/// Its memory is empty again, and a smaller trial trains there.
TEST_P(KindTraining, TrainsOthersBesideATrialThatDoesNotFit) {
  Session session(devices_of(1, smallest(tiny_trial())));
  EXPECT_THROW(session.submit(resnet_trial(small_resnet(), 64)), Error);
  TrialConfig trial = tiny_trial();
  trial.train.order = OrderChoice::shard_major;
  session.submit(trial);
  session.run();
  EXPECT_EQ(session.result().trials[0].state, TrialState::done);
}

}  // namespace spillway::testing
