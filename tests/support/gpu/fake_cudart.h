#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <future>

#include "spillway/units.h"

/// The calls of the CUDA runtime that core/device/cuda/ makes, without a GPU: a program that is
/// linked with fake_cudart.cpp makes them here. Streams are threads, and the machine is as a test
/// wants it. GPU memory is the host's, but whoever touches it at its address ends the program, as
/// there. What a runtime would do by chance or punish late is counted or refused at once. It shows
/// that streams, events and copies are used in the right order, and nothing about GPUs.
namespace spillway::testing {

struct FakeCuda {
  // What the machine is.
  std::atomic<cudaError_t> found = cudaSuccess;  ///< cudaGetDeviceCount
  std::atomic<int> num_gpus = 2, driver = 13000, capability = 90;
  std::atomic<Bytes> memory = 1_GiB;                 ///< of each GPU
  std::atomic<bool> fragmented = false;              ///< it has room in pieces only
  std::atomic<cudaError_t> lockable = cudaSuccess;   ///< cudaHostRegister
  std::atomic<bool> alike = true;                    ///< its GPUs are of one model
  std::array<std::atomic<cudaError_t>, 2> broken{};  ///< every call on a GPU, from then on
  std::atomic<int> copies_left = -1;  ///< the last of GPU 0's breaks it; below 0: none does
  // What has been done.
  std::atomic<Bytes> taken = 0, locked = 0;
  std::atomic<int> streams = 0, events = 0;
  std::atomic<int> connections = 0;  ///< of one GPU to another
  std::atomic<int> on_no_gpu = 0;    ///< calls of threads that have set no GPU: they would take one
  std::atomic<int> on_no_stream = 0;  ///< work for the default stream, which waits for all others
  std::atomic<int> spinning = 0;      ///< events that a thread would wait for without sleeping
  std::atomic<int> waits = 0;         ///< of a thread for a stream
};

/// The machine of this process.
FakeCuda& fake_cuda();

/// Where copies find the bytes at an address: those of GPU memory lie elsewhere.
std::byte* seen_by_gpu(const void* address);

/// Where kernels find them. Throws std::logic_error where a GPU would not: of the host's memory it
/// reaches what is page-locked.
std::byte* seen_by_kernel(const void* address);

/// What a kernel is on a GPU: runs on the stream, which is one of a Queue, after what it was given
/// before. Throws CudaError where the GPU is broken.
void launch(void* stream, const std::function<void()>& kernel);

/// Keeps a stream from what it is given from here on, until its end.
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
