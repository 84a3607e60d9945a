#include "core/device/cuda/gpu.h"

#include <set>
#include <string>

#include "core/base/mutex.h"
#include "core/device/device.h"

namespace spillway {
namespace {

constexpr int kOldestMajor = 8;  // of compute capability, as cmake/Cuda.cmake compiles

struct Count {
  int gpus = 0;
  std::string why_none;
};

Count count_gpus() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return {.gpus = count};
  cudaGetLastError();
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return {.why_none = why_no_gpu(code == cudaSuccess ? cudaErrorNoDevice : code, driver, runtime)};
}

struct GpuMemory {
  std::size_t free = 0, total = 0;
};

GpuMemory memory_of(int index) {
  GpuMemory memory;
  on_gpu(index, [&] { require(cudaMemGetInfo(&memory.free, &memory.total), "cudaMemGetInfo"); });
  return memory;
}

int attribute(cudaDeviceAttr name, int index) {
  int value = 0;
  require(cudaDeviceGetAttribute(&value, name, index), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

void require_gpu(int index, Bytes budget) {
  const auto [count, why_none] = count_gpus();
  if (count == 0) throw no_gpu(why_none);
  if (index < 0 || index >= count) throw index_out_of_range(index, count);
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, index);
  if (major < kOldestMajor) {
    throw gpu_too_old(index, major, attribute(cudaDevAttrComputeCapabilityMinor, index));
  }
  const Bytes free = memory_of(index).free;
  if (budget > free) throw budget_above_free(index, budget, free);
}

/// Enables peer access. Errors are ignored: copies also work without it, only slower.
static void let_reach(int gpu, int other) {
  end_on_gpu(gpu, [&] {
    int can_reach = 0;
    cudaDeviceCanAccessPeer(&can_reach, gpu, other);
    if (can_reach != 0) cudaDeviceEnablePeerAccess(other, 0);
  });
}

void connect_gpu(int index) {
  static Mutex mutex;
  static std::set<int> connected SPILLWAY_GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  if (!connected.insert(index).second) return;
  for (const int other : connected) {
    if (other == index) continue;
    let_reach(index, other);
    let_reach(other, index);
  }
}

std::string gpu_model(int index) {
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return properties.name;
}

GpuList list_gpus() {
  const Count count = count_gpus();
  GpuList list{.why_none = count.why_none};
  for (int index = 0; index < count.gpus; ++index) {
    const GpuMemory memory = memory_of(index);
    list.gpus.push_back({.name = gpu_model(index), .memory = memory.total, .free = memory.free});
  }
  return list;
}

}  // namespace spillway
