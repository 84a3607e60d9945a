#pragma once

#include <array>
#include <atomic>
#include <cstddef>

/// Link dry_cuda.cpp, fake_cudart.cpp and dry_driver.cpp to run LibTorch's GPU code without a GPU.
/// Kernels and cuBLAS do nothing. Tests see what LibTorch asks a GPU for, how much memory it takes,
/// and where it would synchronize, but no numbers.
namespace spillway::testing {

struct DryCuda {
  std::atomic<int> kernels = 0, products = 0;
  /// Operands of products by the alignment in bytes that cuBLASLt is given.
  std::array<std::atomic<int>, 257> alignments{};
};

/// The requests of this process so far.
DryCuda& dry_cuda();

}  // namespace spillway::testing
