#include <gtest/gtest.h>

#include "core/peers/nccl/nccl_calls.h"

namespace spillway {
namespace {

TEST(NcclLibrary, LiesBesideLibTorchAndHasAllFunctions) {
  int version = 0;
  ASSERT_EQ(nccl_calls().get_version(&version), ncclSuccess);
  EXPECT_GE(version, NCCL_VERSION_CODE) << "older than the header";
}

}  // namespace
}  // namespace spillway
