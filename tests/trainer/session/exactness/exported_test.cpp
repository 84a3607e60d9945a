#include <gtest/gtest.h>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_net.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"

/// Models that PyTorch exported as whole runs.
namespace spillway::testing {
namespace {

class Exported : public ::testing::Test {
 protected:
  TrialConfig trial_of(const ExportedNet& net) const {
    const auto file = folder_.path() / "net.spw";
    net.write(file);
    return exported_trial(file);
  }

  const TemporaryFolder folder_;
};

TEST_F(Exported, KeepsTheBitsOfAResidentRunWhenSpilledOverLanes) {
  TrialConfig trial = trial_of(exported_net());
  const RunResult resident = train(session_of(1, kAmple), trial);
  ASSERT_EQ(resident.trials[0].state, TrialState::done) << resident.trials[0].reason;
  EXPECT_EQ(resident.trials[0].num_shards, 1);

  const Bytes budget = smallest_budget(trial);
  const RunResult spilled = train(session_of(1, budget), trial);
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_within_budgets(spilled);
  expect_same_bits(spilled.trials[0], resident.trials[0]);
  EXPECT_EQ(spilled.trials[0].eval_metrics.size(), 2u);

  trial.train.data_parallel = 2;
  const RunResult lanes = train(session_of(2, budget), trial);
  for (const DeviceResult& device : lanes.devices) EXPECT_GT(device.ops, 0u);
  expect_same_bits(lanes.trials[0], resident.trials[0]);
}

/// The control: masks and statistics of other virtual nodes.
TEST_F(Exported, HasOtherBitsForOtherVirtualNodes) {
  TrialConfig trial = trial_of(exported_net());
  const auto four = train(session_of(1, kAmple), trial).trials[0];
  trial.train.batch_size *= 2;
  trial.train.virtual_nodes *= 2;
  expect_other_bits(train(session_of(1, kAmple), trial).trials[0], four);
}

}  // namespace
}  // namespace spillway::testing
