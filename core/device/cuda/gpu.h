#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <string>
#include <thread>

#include "core/device/cuda/cuda_error.h"
#include "spillway/units.h"

namespace spillway {

/// Throws ConfigError (`kind`, `index`, `memory`) unless the GPU exists, this build has code for
/// it, and `budget` bytes are free on it. `index` may be negative.
void require_gpu(int index, Bytes budget);

/// Enables direct copies between this GPU and those of earlier calls, where links allow it. Other
/// copies go through host memory, by CUDA. Thread-safe; throws nothing.
void connect_gpu(int index);

/// The GPU's product name.
std::string gpu_model(int index);

/// Runs `work` on a new thread whose GPU is `index`, and rethrows its exception. On a thread that
/// has not chosen a GPU, the runtime uses GPU 0 and takes memory there.
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

/// The same for clean-up, which must run even if the GPU has failed, because copies may still be in
/// progress. `work` must not throw.
template <typename Work>
void end_on_gpu(int index, const Work& work) {
  std::thread([&] {
    cudaSetDevice(index);
    work();
  }).join();
}

}  // namespace spillway
