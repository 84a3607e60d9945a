#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <future>

#include "spillway/units.h"

/// The calls of the CUDA runtime that core/ makes, without a GPU. Link fake_cudart.cpp
/// to use them. Streams are threads, and the test configures the machine. GPU memory is host
/// memory, but an access at its GPU address ends the program. Undefined behaviour that a real
/// runtime may tolerate or report late is counted or refused at once. Tests see whether streams,
/// events and copies are used in the right order, but nothing about GPUs.
namespace spillway::testing {

struct FakeCuda {
  // The configuration of the machine.
  std::atomic<cudaError_t> found = cudaSuccess;  ///< cudaGetDeviceCount
  std::atomic<int> num_gpus = 2, driver = 13000, capability = 90;
  std::atomic<Bytes> memory = 1_GiB;                 ///< of each GPU
  std::atomic<bool> fragmented = false;              ///< free memory is fragmented
  std::atomic<cudaError_t> lockable = cudaSuccess;   ///< cudaHostRegister
  std::atomic<bool> alike = true;                    ///< all GPUs are of one model
  std::array<std::atomic<cudaError_t>, 2> broken{};  ///< every later call on a GPU fails
  std::atomic<int> copies_left = -1;                 ///< the last one breaks GPU 0; negative: none
  // Counters.
  std::atomic<Bytes> taken = 0, locked = 0;
  std::atomic<int> streams = 0, events = 0;
  std::atomic<int> connections = 0;   ///< between GPUs
  std::atomic<int> on_no_gpu = 0;     ///< calls of threads that have set no GPU and would use GPU 0
  std::atomic<int> on_no_stream = 0;  ///< work for the default stream, which waits for all others
  std::atomic<int> spinning = 0;      ///< events on which a thread would spin
  std::atomic<int> waits = 0;         ///< a thread waited for a stream
  std::atomic<int> pageable = 0;  ///< copies that made a thread wait: memory was not page-locked
};

/// The machine of this process.
FakeCuda& fake_cuda();

/// The address for copies: the bytes of GPU memory lie elsewhere.
std::byte* seen_by_gpu(const void* address);

/// The address for kernels. Throws std::logic_error for host memory that is not page-locked, which
/// a GPU cannot access.
std::byte* seen_by_kernel(const void* address);

/// A kernel on a GPU: runs on the stream of a Queue, after its earlier work. Throws CudaError if
/// the GPU is broken.
void launch(void* stream, const std::function<void()>& kernel);

/// Blocks a stream from here on, until its destruction.
class HeldStream {
 public:
  explicit HeldStream(void* stream);
  ~HeldStream() { opened_.set_value(); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

 private:
  std::promise<void> opened_;
};

}  // namespace spillway::testing
