#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>

#include "spillway/error.h"

namespace spillway {

/// Whether a device still works: the first error that any of its calls gave. CUDA says late, at
/// some other call, that work on a GPU failed, and nothing done there can be relied on from then
/// on. Thread-safe.
class CudaHealth {
 public:
  explicit CudaHealth(std::string device) : device_(std::move(device)) {}

  void note(cudaError_t code) {
    cudaError_t none = cudaSuccess;
    if (code != cudaSuccess) first_.compare_exchange_strong(none, code);
  }
  /// Throws DeviceLost once there was an error.
  void require_good() const {
    const cudaError_t code = first_;
    if (code != cudaSuccess) throw DeviceLost(device_, cudaGetErrorString(code));
  }

 private:
  const std::string device_;
  std::atomic<cudaError_t> first_ = cudaSuccess;
};

}  // namespace spillway
