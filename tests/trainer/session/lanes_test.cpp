#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/run/training_run.h"

/// The result of a trial does not depend on the number of devices that compute a step, nor on their
/// shares.
namespace spillway::testing {
namespace {

TrialConfig trial_of(int virtual_nodes, int groups) {
  TrialConfig trial = tiny_trial();
  trial.train.batch_size = 2 * virtual_nodes;
  trial.train.virtual_nodes = virtual_nodes;
  trial.train.reduction_groups = groups;
  trial.train.eval_steps = 0;
  trial.train.eval_batches = 1;
  return trial;
}

struct Case {
  int virtual_nodes, groups;
  std::vector<int> lane_groups;
};

class Lanes : public ::testing::TestWithParam<Case> {};

/// Resident and at the smallest budget. A lane is bound to a device for a step, so every device has
/// work of it.
TEST_P(Lanes, HaveTheBitsOfOneDevice) {
  const auto& [virtual_nodes, groups, lane_groups] = GetParam();
  const TrialConfig trial = trial_of(virtual_nodes, groups);
  const RunResult alone = train(session_of(1, kAmple), trial);
  for (const Bytes budget : {kAmple, smallest_budget(trial)}) {
    const auto num_devices = static_cast<int>(lane_groups.size());
    const RunResult lanes = train(session_of(num_devices, budget), with_lanes(trial, lane_groups));
    EXPECT_EQ(lanes.trials[0].lanes, num_devices);
    const auto shards = static_cast<std::uint64_t>(lanes.trials[0].num_shards);
    EXPECT_EQ(shards > 1, budget < kAmple);
    // 20 steps, one evaluation of the same number of virtual nodes.
    const auto vns = static_cast<std::uint64_t>(virtual_nodes);
    EXPECT_EQ(total(lanes, &DeviceResult::ops), 20 * vns * (2 * shards - 1) + vns * shards);
    const auto least = static_cast<std::uint64_t>(
        *std::min_element(lane_groups.begin(), lane_groups.end()) * virtual_nodes / groups);
    for (const DeviceResult& device : lanes.devices)
      EXPECT_GE(device.ops, 20 * least * (2 * shards - 1));
    expect_within_budgets(lanes);
    expect_same_bits(lanes.trials[0], alone.trials[0]);
  }
}

std::string name_of(const ::testing::TestParamInfo<Case>& test) {
  std::string name = "V" + std::to_string(test.param.virtual_nodes) + "G" +
                     std::to_string(test.param.groups) + "As";
  for (int size : test.param.lane_groups) name += std::to_string(size);
  return name;
}

INSTANTIATE_TEST_SUITE_P(, Lanes, ::testing::Values(Case{6, 6, {1, 2, 3}}, Case{16, 4, {3, 1}}),
                         name_of);

TEST(TwoLanes, RunOnAnyTwoOfThreeDevices) {
  const TrialConfig trial = trial_of(8, 8);
  const RunResult alone = train(session_of(1, kAmple), trial);
  std::vector<TrialConfig> trials(3, with_lanes(trial, {5, 3}));
  const RunResult result = train(session_of(3, smallest_budget(trial)), trials);
  for (const DeviceResult& device : result.devices) EXPECT_GT(device.ops, 0u);
  for (const TrialResult& each : result.trials) expect_same_bits(each, alone.trials[0]);
}

TEST(OneLane, MovesBetweenDevices) {
  const TrialConfig trial = tiny_trial();
  const RunResult alone = train(session_of(1, kAmple), trial);
  for (int num_devices : {2, 3}) {
    // Other jobs move it between devices.
    std::vector<TrialConfig> trials(3, trial);
    const RunResult result = train(session_of(num_devices, smallest_budget(trial)), trials);
    for (const DeviceResult& device : result.devices) EXPECT_GT(device.ops, 0u);
    for (const TrialResult& each : result.trials) expect_same_bits(each, alone.trials[0]);
  }
}

}  // namespace
}  // namespace spillway::testing
