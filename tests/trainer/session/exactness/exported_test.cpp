#include <gtest/gtest.h>

#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_net.h"
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
  const TrialConfig trial = trial_of(exported_net());
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  expect_same_bits_when_spilled(trial, resident);
  EXPECT_EQ(resident.eval_metrics.size(), 2u);
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
