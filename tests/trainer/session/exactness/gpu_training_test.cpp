#include "tests/trainer/session/exactness/kind_training.h"

namespace spillway::testing {

/// LibTorch looks for GPUs only once, so this must be the first test of the program.
TEST(AfterTheCpu, TrainsOnAGpu) {
  train(session_of(1, kAmple), tiny_trial());
  SessionConfig config = session_of(1, kAmple);
  config.activation_share = 0.5;
  config.devices[0].kind = DeviceKind::cuda;
  EXPECT_EQ(train(config, tiny_trial()).trials[0].state, TrialState::done);
}

INSTANTIATE_TEST_SUITE_P(Gpu, KindTraining, ::testing::Values(DeviceKind::cuda));

}  // namespace spillway::testing
