#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <string>
#include <thread>

#include "core/device/cuda/cuda_error.h"
#include "spillway/units.h"

namespace spillway {

/// Throws ConfigError (`kind`, `index`, `memory`) unless the GPU is there, this build has code for
/// it, and `budget` bytes are free on it. `index` may be below 0.
void require_gpu(int index, Bytes budget);

/// Where links allow it, copies between this GPU and those that it was called for before go from
/// one to the other. Between others they go through host memory, by CUDA. Any thread; throws
/// nothing.
void connect_gpu(int index);

/// As its maker calls it.
std::string gpu_model(int index);

/// Runs `work` on a thread of its own whose GPU is `index`, and throws what it throws. What the
/// runtime does for a thread without a GPU of its own it does on GPU 0, and takes memory there.
template <typename Work>
void on_gpu(int index, const Work& work) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      require(cudaSetDevice(index), "cudaSetDevice");
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

/// Likewise, also where the GPU has failed: for what is to end, as copies may still be moving
/// bytes. `work` must not throw.
template <typename Work>
void end_on_gpu(int index, const Work& work) {
  std::thread([&] {
    cudaSetDevice(index);
    work();
  }).join();
}

}  // namespace spillway
