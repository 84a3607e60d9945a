#pragma once

#include <array>
#include <atomic>
#include <cstddef>

/// LibTorch's own part for GPUs without one: a program that is linked with dry_cuda.cpp and
/// fake_cudart.cpp, and finds the driver that dry_driver.cpp stands for, runs all of it but the
/// kernels, which do nothing, and cuBLAS, which multiplies nothing. It shows what LibTorch asks a
/// GPU for, how much memory it takes, and where it would wait; no numbers.
namespace spillway::testing {

struct DryCuda {
  std::atomic<int> kernels = 0, products = 0;
  /// Operands of products by what cuBLASLt is told of their alignment, in bytes.
  std::array<std::atomic<int>, 257> alignments{};
};

/// What has been asked for in this process.
DryCuda& dry_cuda();

}  // namespace spillway::testing
