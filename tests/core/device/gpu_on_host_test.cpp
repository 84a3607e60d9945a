#include "tests/support/gpu/gpu_on_host.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/device/device.h"

/// Kernels compiled as C++ reveal errors of kernels.
namespace spillway::testing {
namespace {

constexpr unsigned kThreads = 64;

/// Every thread takes the value of the next one.
template <bool kWaits>
__global__ void rotate(int* x) {
  __shared__ int all[kThreads];
  all[threadIdx.x] = x[blockIdx.x * kThreads + threadIdx.x];
  if constexpr (kWaits) __syncthreads();
  x[blockIdx.x * kThreads + threadIdx.x] = all[(threadIdx.x + 1) % kThreads];
}

/// Sums the numbers from 0 on, in two blocks.
std::vector<int> rotated(void (*kernel)(int*)) {
  const auto device = make_cuda_device("cuda:0", 0, 1_MiB);
  std::vector<int> x(2 * kThreads);
  std::iota(x.begin(), x.end(), 0);
  const Bytes bytes = x.size() * sizeof(int);
  const auto memory = device->allocate(bytes);
  device->compute().copy_async(memory->data(), x.data(), bytes);
  device->compute().enqueue([&] {
    void* address = memory->data();
    void* arguments[] = {&address};
    cudaLaunchKernel(kernel, dim3(2), dim3(kThreads), arguments, 0,
                     static_cast<cudaStream_t>(device->compute().stream()));
  });
  device->compute().copy_async(x.data(), memory->data(), bytes);
  device->compute().record().wait();
  return x;
}

std::vector<int> expected() {
  std::vector<int> x(2 * kThreads);
  for (unsigned i = 0; i < 2 * kThreads; ++i) {
    x[i] = static_cast<int>(i / kThreads * kThreads + (i + 1) % kThreads);
  }
  return x;
}

TEST(GpuOnHost, SynchronizesThreads) { EXPECT_EQ(rotated(&rotate<true>), expected()); }

TEST(GpuOnHost, DetectsAMissingBarrier) { EXPECT_NE(rotated(&rotate<false>), expected()); }

TEST(GpuOnHost, RefusesUnreachableMemory) {
  int on_the_host = 0;
  int* address = &on_the_host;
  EXPECT_THROW(argument<int*>(&address), std::logic_error);
}

TEST(GpuOnHost, DetectsADivergentBarrier) {
  const std::function<void()> kernel = [] {
    if (threadIdx.x != 5) __syncthreads();
  };
  EXPECT_THROW(HostBlock(kThreads, kernel).run(0), std::logic_error);
}

}  // namespace
}  // namespace spillway::testing
