#include "trainer/torch/torch_gpu.h"

#include <gtest/gtest.h>

#include "core/device/device.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Its library exists nevertheless, with the symbols that are looked up in it.
TEST(TorchGpu, FailsWithAReasonWithoutGpu) {
  if (!list_gpus().gpus.empty()) GTEST_SKIP() << "there is a GPU";
  try {
    load_torch_gpu();
    FAIL() << "LibTorch finds a GPU that is not there";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.field, "kind");
    EXPECT_EQ(error.problem.find("is cuda, but "), 0u);
    EXPECT_EQ(error.problem.find("lacks"), std::string::npos) << error.problem;
    EXPECT_EQ(error.problem.find("cannot be loaded"), std::string::npos) << error.problem;
  }
}

}  // namespace
}  // namespace spillway
