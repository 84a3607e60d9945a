#include "tests/trainer/kind_training.h"

namespace spillway::testing {

INSTANTIATE_TEST_SUITE_P(Gpu, KindTraining, ::testing::Values("cuda"));

}  // namespace spillway::testing
