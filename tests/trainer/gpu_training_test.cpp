#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/small_resnet.h"
#include "tests/support/training_run.h"

/// Whole runs on a GPU, which several devices may share: the same bits for every budget, number of
/// devices and division into lanes.
namespace spillway::testing {
namespace {

SessionConfig gpus(int devices, Bytes memory) {
  SessionConfig config = session_of(devices, memory);
  for (DeviceConfig& device : config.devices) device.kind = "cuda";
  return config;
}

Bytes smallest_on_gpu(const TrialConfig& trial) {
  TrialConfig spilled = trial;
  spilled.train.order = "shard_major";
  Session session(gpus(1, kAmple));
  return session.plan(session.submit(spilled)).smallest_budget_bytes;
}

void expect_same_bits_everywhere(const TrialConfig& trial) {
  const RunResult resident = train(gpus(1, kAmple), trial);
  expect_within_budgets(resident);
  const Bytes smallest = smallest_on_gpu(trial);
  for (const Bytes memory : {smallest, (smallest + kAmple) / 8}) {
    SCOPED_TRACE(memory);
    TrialConfig spilled = trial;
    spilled.train.order = "shard_major";
    const RunResult result = train(gpus(1, memory), spilled);
    expect_same_bits(result.trials[0], resident.trials[0]);
    expect_within_budgets(result);
    EXPECT_GT(result.trials[0].num_shards, 1);
  }
  for (const std::vector<int>& lane_groups : {std::vector{2, 2}, {3, 1}, {1, 2, 1}}) {
    const auto lanes = static_cast<int>(lane_groups.size());
    SCOPED_TRACE(lanes);
    const RunResult result = train(gpus(lanes, kAmple), with_lanes(trial, lane_groups));
    expect_same_bits(result.trials[0], resident.trials[0]);
  }
  TrialConfig other = trial;
  other.train.seed += 1;
  expect_other_bits(train(gpus(1, kAmple), other).trials[0], resident.trials[0]);
}

TEST(GpuTraining, AGptKeepsItsBits) { expect_same_bits_everywhere(tiny_trial()); }

TEST(GpuTraining, AResidualNetworkKeepsItsBits) { expect_same_bits_everywhere(resnet_trial()); }

TEST(GpuTraining, Bf16KeepsItsBits) {
  TrialConfig trial = tiny_trial();
  trial.train.dtype = "bf16";
  expect_same_bits_everywhere(trial);
}

TEST(GpuTraining, TrialsShareAGpuWithoutChangingEachOther) {
  TrialConfig second = tiny_trial("b");
  second.train.seed = 7;
  const RunResult alone = train(gpus(1, kAmple), second);
  const RunResult both = train(gpus(2, kAmple), {tiny_trial("a"), second});
  expect_same_bits(both.trials[1], alone.trials[0]);
}

/// Kinds round differently, in the last digits.
TEST(GpuTraining, ComputesWhatTheProcessorComputes) {
  const RunResult on_gpu = train(gpus(1, kAmple), tiny_trial());
  const RunResult on_cpu = train(session_of(1, kAmple), tiny_trial());
  ASSERT_EQ(on_gpu.trials[0].state, TrialState::done) << on_gpu.trials[0].reason;
  EXPECT_EQ(on_gpu.trials[0].losses.size(), on_cpu.trials[0].losses.size());
  EXPECT_LT(largest_difference(on_gpu.trials[0].losses, on_cpu.trials[0].losses), 1e-3);
}

/// The pool is empty again, and a smaller trial trains there.
TEST(GpuTraining, ATrialThatDoesNotFitLeavesRoomForOthers) {
  Session session(gpus(1, smallest_on_gpu(tiny_trial())));
  TrialConfig large = resnet_trial(small_resnet(), 64);
  EXPECT_THROW(session.submit(large), Error);
  TrialConfig trial = tiny_trial();
  trial.train.order = "shard_major";
  session.submit(trial);
  session.run();
  EXPECT_EQ(session.result().trials[0].state, TrialState::done);
}

}  // namespace
}  // namespace spillway::testing
