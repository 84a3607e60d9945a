#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/run/interrupted.h"
#include "tests/support/run/training_run.h"

/// What every family promises of a trial of four reduction groups, and controls.
namespace spillway::testing {

inline void expect_same_bits_over_budgets_orders_and_lanes(const TrialConfig& trial) {
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  ASSERT_EQ(resident.num_shards, 1);
  const Bytes least = smallest_budget(trial);
  using enum OrderChoice;
  for (const auto& [budget, order] :
       {std::pair{least, shard_major}, {2 * least, automatic}, {kAmple, vn_major}}) {
    TrialConfig ordered = trial;
    ordered.train.order = order;
    const RunResult run = train(session_of(1, budget), ordered);
    expect_within_budgets(run);
    expect_same_bits(run.trials[0], resident);
    EXPECT_TRUE(budget > least || run.trials[0].num_shards > 2);
  }
  for (const auto& [budget, lanes] :
       {std::pair{2 * least, std::vector{2, 2}}, {kAmple, {3, 1}}, {2 * least, {1, 1, 2}}}) {
    const auto devices = static_cast<int>(lanes.size());
    const RunResult run = train(session_of(devices, budget), with_lanes(trial, lanes));
    for (const DeviceResult& device : run.devices) EXPECT_GT(device.ops, 0u);
    expect_same_bits(run.trials[0], resident);
  }
}

inline void expect_same_bits_after_a_resume(const TrialConfig& trial) {
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  const Interrupted interrupted(trial);
  const Bytes least = smallest_budget(trial);
  const RunResult resumed = train(session_of(1, least), interrupted.continued(trial));
  expect_same_bits(resumed.trials[0], resident);
}

/// Negative control of a divided model: the whole one and other groups differ by rounding alone,
/// because their masks are the same; without dropout the losses differ by more.
inline void expect_other_bits_of_controls(const TrialConfig& divided, const TrialConfig& whole,
                                          const TrialConfig& undropped) {
  const TrialResult resident = train(session_of(1, kAmple), divided).trials[0];
  TrialConfig other_groups = divided;
  other_groups.train.reduction_groups = 1;
  for (const TrialConfig& control : {whole, other_groups}) {
    const TrialResult other = train(session_of(1, kAmple), control).trials[0];
    expect_other_bits(other, resident);
    EXPECT_LT(largest_difference(other.losses, resident.losses), 1e-3);
  }
  const TrialResult other = train(session_of(1, kAmple), undropped).trials[0];
  expect_other_bits(other, resident);
  EXPECT_GT(largest_difference(other.losses, resident.losses), 1e-3);
}

}  // namespace spillway::testing
