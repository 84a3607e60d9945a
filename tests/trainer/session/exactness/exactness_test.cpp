#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <set>

#include "tests/support/run/training_run.h"

/// The result of a trial does not depend on budgets, order, double buffering or other trials. Each
/// test asserts by counters that its run took the path that it names.
namespace spillway::testing {
namespace {

constexpr std::uint64_t kSteps = 20, kVirtualNodes = 8, kEvaluations = 2, kEvalVns = 16;
/// With one lane, each step and evaluation takes every virtual node through the one shard.
constexpr std::uint64_t kResidentOps = kSteps * kVirtualNodes + kEvaluations * kEvalVns;

/// The whole model on one device, virtual node by virtual node.
const RunResult& resident() {
  static const RunResult result = train(session_of(1, kAmple), tiny_trial());
  return result;
}

/// Ops of shard-major training: forward through all shards but the last, backward through all.
std::uint64_t shard_major_ops(std::uint64_t shards) {
  return kSteps * kVirtualNodes * (2 * shards - 1) + kEvaluations * kEvalVns * shards;
}

void expect_spilled(const RunResult& result) {
  const auto shards = static_cast<std::uint64_t>(result.trials[0].num_shards);
  EXPECT_GT(shards, 1u);
  EXPECT_EQ(result.trials[0].order, "shard_major");
  EXPECT_EQ(total(result, &DeviceResult::ops), shard_major_ops(shards));
  EXPECT_GT(total(result, &DeviceResult::evictions), 0u);
  EXPECT_GT(result.h2d_weight_bytes, resident().h2d_weight_bytes);
  expect_within_budgets(result);
}

TEST(Exactness, HoldsTheWholeModelInAResidentRun) {
  const RunResult& result = resident();
  EXPECT_EQ(result.trials[0].num_shards, 1);
  EXPECT_EQ(result.trials[0].order, "vn_major");
  EXPECT_EQ(total(result, &DeviceResult::ops), kResidentOps);
  EXPECT_EQ(total(result, &DeviceResult::evictions), 0u);
  expect_within_budgets(result);
  EXPECT_LT(result.trials[0].losses.back(), 0.95 * result.trials[0].losses.front());
}

TEST(Exactness, KeepsItsBitsAtEveryBudgetWithAndWithoutDoubleBuffer) {
  const Bytes smallest = smallest_budget(tiny_trial());
  EXPECT_LT(smallest, resident().trials[0].training_state_bytes);
  std::set<int> shards;
  for (const bool double_buffer : {true, false}) {
    for (const Bytes budget : {smallest, smallest * 3 / 2}) {
      SCOPED_TRACE(::testing::Message() << budget << " bytes, double buffer " << double_buffer);
      SessionConfig config = session_of(1, budget);
      config.double_buffer = double_buffer;
      const RunResult spilled = train(config, tiny_trial());
      expect_spilled(spilled);
      shards.insert(spilled.trials[0].num_shards);
      const auto prefetches = total(spilled, &DeviceResult::prefetches);
      EXPECT_TRUE(double_buffer ? prefetches > 0 || budget == smallest : prefetches == 0);
      expect_same_bits(spilled.trials[0], resident().trials[0]);
    }
  }
  EXPECT_GE(shards.size(), 2u);
}

TEST(Exactness, HasTheSameBitsInBothOrders) {
  TrialConfig trial = tiny_trial();
  trial.train.order = OrderChoice::shard_major;
  const RunResult one_shard = train(session_of(1, kAmple), trial);
  EXPECT_EQ(one_shard.trials[0].order, "shard_major");
  EXPECT_EQ(resident().trials[0].order, "vn_major");
  expect_same_bits(one_shard.trials[0], resident().trials[0]);
}

TEST(Exactness, KeepsItsBitsAmongFiveOtherJobs) {
  const Bytes budget = smallest_budget(tiny_trial());
  std::vector<TrialConfig> trials;
  for (int other = 0; other < 6; ++other) {
    trials.push_back(tiny_trial("trial " + std::to_string(other)));
    if (other == 3) continue;
    trials.back().train.seed = 100 + static_cast<std::uint64_t>(other);
    trials.back().train.max_steps = 10 + other;
  }
  const RunResult shared = train(session_of(2, budget * 5 / 4), trials);
  for (const DeviceResult& device : shared.devices) EXPECT_GT(device.ops, kResidentOps);
  for (const TrialResult& trial : shared.trials) EXPECT_EQ(trial.state, TrialState::done);
  expect_within_budgets(shared);
  expect_same_bits(shared.trials[3], resident().trials[0]);
  EXPECT_NE(shared.trials[2].weights_xxh3, shared.trials[3].weights_xxh3);
}

/// A process may round otherwise, and flush denormal numbers to zero: -ffast-math does.
TEST(Exactness, IgnoresFloatModesOfTheCaller) {
  const TrialResult& expected = resident().trials[0];
  at::globalContext().setFlushDenormal(true);
  std::fesetround(FE_UPWARD);
  const TrialResult result = train(session_of(1, kAmple), tiny_trial()).trials[0];
  EXPECT_EQ(std::fegetround(), FE_UPWARD) << "restored";
  std::fesetround(FE_TONEAREST);
  at::globalContext().setFlushDenormal(false);
  expect_same_bits(result, expected);
}

TEST(Exactness, DiffersForControls) {
  TrialConfig other_seed = tiny_trial(), other_fold = tiny_trial(), other_nodes = tiny_trial();
  other_seed.train.seed = 8;
  other_fold.train.reduction_groups = 1;  // from the left
  other_nodes.train.virtual_nodes = other_nodes.train.reduction_groups = 4;
  for (const TrialConfig& control : {other_seed, other_fold, other_nodes}) {
    const RunResult result = train(session_of(1, kAmple), control);
    expect_other_bits(result.trials[0], resident().trials[0]);
  }
  // Another order of the same sums has the same contract.
  const RunResult refolded = train(session_of(1, kAmple), other_fold);
  EXPECT_NEAR(refolded.trials[0].losses.back(), resident().trials[0].losses.back(), 1e-3);
}

}  // namespace
}  // namespace spillway::testing
