#include "trainer/profile/roofline.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

/// 8 operations a token and weight on 8 TFLOP/s are 1 ps.
const MachineDevice kDevice{.kind = "cuda:0",
                            .h2d_bytes_per_s = 50e9,
                            .d2h_bytes_per_s = 50e9,
                            .duplex_bytes_per_s = 75e9,
                            .flops_per_s = 8e12,
                            .bf16_flops_per_s = 80e12};

TEST(Roofline, OverlapsBothDirectionsForFp32) {
  const Roofline line = roofline(kDevice, DType::f32, 4e9);
  EXPECT_DOUBLE_EQ(line.copy_tokens, 12 / 75e9 / 1e-12);  // one direction alone: 8 / 50e9, the same
  EXPECT_DOUBLE_EQ(line.update_tokens, 4 / 4e9 / 1e-12);
  EXPECT_EQ(line.tokens(), line.update_tokens);
}

TEST(Roofline, HalvesWeightsAndUsesTheFasterProductForBf16) {
  const Roofline line = roofline(kDevice, DType::bf16, 40e9);
  EXPECT_DOUBLE_EQ(line.copy_tokens, 8 / 75e9 / 1e-13);
  EXPECT_EQ(line.tokens(), line.copy_tokens);
}

TEST(Roofline, UsesTheSlowerDirection) {
  MachineDevice device = kDevice;
  device.d2h_bytes_per_s = 1e9;
  EXPECT_DOUBLE_EQ(roofline(device, DType::f32, 4e12).copy_tokens, 4 / 1e9 / 1e-12);
}

TEST(Roofline, RoundsUpToWholeVirtualNodes) {
  const Roofline line{.copy_tokens = 4096, .update_tokens = 100};
  EXPECT_EQ(line.virtual_nodes(2048), 2);
  EXPECT_EQ(line.virtual_nodes(2047), 3);
  EXPECT_EQ(line.virtual_nodes(5000), 1);
}

TEST(Roofline, IsAbsentWithoutARate) {
  EXPECT_EQ(roofline({.kind = "cuda:0", .h2d_bytes_per_s = 1}, DType::f32, 1).tokens(), 0);
}

}  // namespace
}  // namespace spillway
