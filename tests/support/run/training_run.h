#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "spillway/session.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/run/measured_costs.h"

/// Whole runs of a session, and comparisons of their bits.
namespace spillway::testing {

/// Devices of equal budgets.
inline SessionConfig session_of(int num_devices, Bytes budget) {
  SessionConfig config{.pilot_cache = measured_costs()};
  config.devices.assign(static_cast<std::size_t>(num_devices), {.memory = budget});
  return config;
}

/// Holds a tiny GPT whole, activations included.
inline constexpr Bytes kAmple = 64_MiB;

inline RunResult train(const SessionConfig& config, const std::vector<TrialConfig>& trials) {
  Session session(config);
  for (const TrialConfig& trial : trials) session.submit(trial);
  session.run();
  return session.result();
}

inline RunResult train(const SessionConfig& config, const TrialConfig& trial) {
  return train(config, std::vector{trial});
}

/// Lanes with these numbers of reduction groups.
inline TrialConfig with_lanes(TrialConfig trial, std::vector<int> lane_groups) {
  trial.train.data_parallel = static_cast<int>(lane_groups.size());
  trial.train.lane_groups = std::move(lane_groups);
  return trial;
}

/// The smallest device budget that fits a trial.
inline Bytes smallest_budget(TrialConfig trial, bool double_buffer = true) {
  trial.train.order = OrderChoice::shard_major;
  trial.train.data_parallel = 1;
  trial.train.lane_groups.clear();
  SessionConfig config = session_of(1, kAmple);
  config.double_buffer = double_buffer;
  Session session(config);
  return session.plan(session.submit(trial)).smallest_budget_bytes;
}

/// Compares weights, every loss and every evaluation, bit by bit.
inline void expect_same_bits(const TrialResult& a, const TrialResult& b) {
  ASSERT_EQ(a.state, TrialState::done) << a.reason;
  ASSERT_EQ(b.state, TrialState::done) << b.reason;
  EXPECT_GE(a.steps, 10);
  EXPECT_EQ(a.weights_xxh3, b.weights_xxh3);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.eval_losses, b.eval_losses);
  EXPECT_EQ(a.eval_metrics, b.eval_metrics);
}

/// Negative control: the comparison must be able to fail.
inline void expect_other_bits(const TrialResult& a, const TrialResult& b) {
  ASSERT_EQ(a.state, TrialState::done) << a.reason;
  ASSERT_EQ(b.state, TrialState::done) << b.reason;
  EXPECT_EQ(a.weights_xxh3.size(), 32u);
  EXPECT_NE(a.weights_xxh3, b.weights_xxh3);
  EXPECT_NE(a.losses, b.losses);
}

/// Sum of a counter over devices.
inline std::uint64_t total(const RunResult& result, std::uint64_t DeviceResult::*counter) {
  std::uint64_t sum = 0;
  for (const DeviceResult& device : result.devices) sum += device.*counter;
  return sum;
}

/// The difference of losses of the same steps, relative to those of `b`.
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

inline void expect_within_budgets(const RunResult& result) {
  for (const DeviceResult& device : result.devices) {
    EXPECT_LE(device.peak_bytes, device.budget_bytes);
    EXPECT_LE(device.activation_peak_bytes, device.peak_bytes);
  }
  EXPECT_LE(result.host_peak_bytes, result.host_budget_bytes);
}

/// A model that `resident` trained whole has the same bits at the smallest budget, and over two
/// lanes there and with ample memory.
inline void expect_same_bits_when_spilled(const TrialConfig& trial, const TrialResult& resident) {
  ASSERT_EQ(resident.state, TrialState::done) << resident.reason;
  EXPECT_EQ(resident.num_shards, 1);
  const Bytes budget = smallest_budget(trial);
  const RunResult spilled = train(session_of(1, budget), trial);
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_within_budgets(spilled);
  expect_same_bits(spilled.trials[0], resident);
  for (const Bytes lane_budget : {budget, kAmple}) {
    const RunResult lanes = train(session_of(2, lane_budget), with_lanes(trial, {1, 1}));
    for (const DeviceResult& device : lanes.devices) EXPECT_GT(device.ops, 0u);
    expect_same_bits(lanes.trials[0], resident);
  }
}

}  // namespace spillway::testing
