#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "core/device/device.h"
#include "spillway/error.h"

/// main() of programs whose tests need a GPU. Without one it prints the reason and skips, or fails
/// if SPILLWAY_REQUIRE_GPU is set.
int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  ::testing::InitGoogleTest(&argc, argv);
  try {
    spillway::make_cuda_device("probe", 0, spillway::kPage);
  } catch (const spillway::ConfigError& error) {
    std::printf("no GPU to test on: devices: %s\n", error.what());
    return std::getenv("SPILLWAY_REQUIRE_GPU") ? 1 : kSkipped;
  }
  return RUN_ALL_TESTS();
}
