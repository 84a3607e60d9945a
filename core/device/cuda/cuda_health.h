#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>

#include "spillway/error.h"

namespace spillway {

/// The first error of any CUDA call of a device. CUDA reports failed work late, from some other
/// call; after that no result of the device is valid. Thread-safe.
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
