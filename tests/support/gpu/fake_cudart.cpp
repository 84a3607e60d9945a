#include "tests/support/gpu/fake_cudart.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/device/cpu/cpu_queue.h"
#include "core/device/cuda/cuda_error.h"

using spillway::Bytes;
using spillway::testing::fake_cuda;
using spillway::testing::seen_by_gpu;

namespace {

thread_local int current_gpu = -1;

}  // namespace

struct CUstream_st {
  void give(std::function<void()> work) {
    ++unfinished;
    thread.enqueue([this, work = std::move(work)] {
      work();
      --unfinished;
    });
  }

  const int gpu = current_gpu;
  std::atomic<int> unfinished = 0;
  spillway::CpuQueue thread{"fake stream"};
};

struct CUevent_st {
  const int gpu = current_gpu;
  spillway::Event recorded;
};

namespace {

/// GPU addresses cannot be accessed; their bytes lie elsewhere.
class GpuMemory {
 public:
  /// The smallest alignment that CUDA guarantees.
  static constexpr Bytes kOffset = 256;

  void* take(Bytes bytes) {
    auto* const address = map(bytes, PROT_NONE) + kOffset;
    auto* const there = map(bytes, PROT_READ | PROT_WRITE) + kOffset;
    const std::lock_guard lock(mutex_);
    pieces_[address] = {there, bytes};
    return address;
  }

  /// The size in bytes.
  Bytes give_back(void* address) {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(static_cast<std::byte*>(address));
    const auto [there, bytes] = piece->second;
    for (std::byte* begin : {piece->first, there}) munmap(begin - kOffset, bytes + kOffset);
    pieces_.erase(piece);
    return bytes;
  }

  std::byte* find(const std::byte* address) {
    const std::lock_guard lock(mutex_);
    const auto next = pieces_.upper_bound(const_cast<std::byte*>(address));
    if (next == pieces_.begin()) return nullptr;
    const auto& [begin, piece] = *std::prev(next);
    const auto offset = static_cast<Bytes>(address - begin);
    return offset <= piece.size ? piece.there + offset : nullptr;
  }

 private:
  struct Piece {
    std::byte* there = nullptr;
    Bytes size = 0;
  };

  static std::byte* map(Bytes bytes, int access) {
    void* const memory =
        mmap(nullptr, bytes + kOffset, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }

  std::mutex mutex_;
  std::map<std::byte*, Piece> pieces_;  // by address; under mutex_
};

GpuMemory& gpu_memory() {
  static GpuMemory all;
  return all;
}

/// Host memory that GPUs can access.
class LockedMemory {
 public:
  void add(const void* begin, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    pieces_[static_cast<const std::byte*>(begin)] = bytes;
  }
  void remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    pieces_.erase(static_cast<const std::byte*>(begin));
  }
  bool contains(const std::byte* address) {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.upper_bound(address);
    if (piece == pieces_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(piece);
    return address < begin + bytes;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, Bytes> pieces_;  // by address; under mutex_
};

LockedMemory& locked_memory() {
  static LockedMemory all;
  return all;
}

/// Whether a copy waits for its stream, because the GPU cannot access this memory.
bool is_pageable(const void* address) {
  const auto* const begin = static_cast<const std::byte*>(address);
  return !gpu_memory().find(begin) && !locked_memory().contains(begin);
}

/// The state of the thread's GPU; the first one if it has set none, as in CUDA.
cudaError_t state() { return fake_cuda().broken.at(current_gpu > 0 ? 1 : 0); }

/// Every call that uses a GPU starts with it.
cudaError_t on_gpu() {
  if (current_gpu < 0) ++fake_cuda().on_no_gpu;
  return state();
}

/// The default stream runs it at once.
cudaError_t give(cudaStream_t stream, const std::function<void()>& work) {
  if (const cudaError_t code = on_gpu()) return code;
  if (stream) {
    stream->give(work);
  } else {
    ++fake_cuda().on_no_stream;
    work();
  }
  return cudaSuccess;
}

}  // namespace

namespace spillway::testing {

FakeCuda& fake_cuda() {
  static FakeCuda machine;
  return machine;
}

std::byte* seen_by_gpu(const void* address) {
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(address));
  std::byte* const there = gpu_memory().find(begin);
  return there ? there : begin;
}

std::byte* seen_by_kernel(const void* address) {
  std::byte* const there = seen_by_gpu(address);
  if (there != address || address == nullptr || locked_memory().contains(there)) return there;
  throw std::logic_error("a kernel is to touch memory that a GPU does not reach");
}

void launch(void* stream, const std::function<void()>& kernel) {
  require(give(static_cast<cudaStream_t>(stream), kernel), "launch");
}

HeldStream::HeldStream(void* stream) {
  static_cast<cudaStream_t>(stream)->give(
      [opened = opened_.get_future().share()] { opened.wait(); });
}

}  // namespace spillway::testing

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t found = fake_cuda().found;
  if (found == cudaSuccess) *count = fake_cuda().num_gpus;
  return found;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake_cuda().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return state(); }

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorIllegalAddress ? "an illegal memory access" : "an error of CUDA";
}

cudaError_t cudaSetDevice(int gpu) {
  if (gpu < 0 || gpu >= fake_cuda().num_gpus) return cudaErrorInvalidDevice;
  current_gpu = gpu;
  return state();
}

cudaError_t cudaGetDevice(int* gpu) {
  *gpu = std::max(current_gpu, 0);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int gpu, int peer) {
  *can_access = gpu != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (const cudaError_t code = on_gpu()) return code;
  if (flags != 0 || peer == current_gpu) return cudaErrorInvalidValue;
  ++fake_cuda().connections;
  return cudaSuccess;
}

/// An H200's values, except those that tests set.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int gpu) {
  *properties = {};
  properties->name[0] = static_cast<char>('A' + (fake_cuda().alike ? 0 : gpu));
  properties->major = fake_cuda().capability / 10;
  properties->minor = fake_cuda().capability % 10;
  properties->totalGlobalMem = fake_cuda().memory;
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  const int threads[] = {1024, 1024, 64}, blocks[] = {0x7FFFFFFF, 0xFFFF, 0xFFFF};
  std::copy(std::begin(threads), std::end(threads), properties->maxThreadsDim);
  std::copy(std::begin(blocks), std::end(blocks), properties->maxGridSize);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int gpu) {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, gpu);
  const std::map<cudaDeviceAttr, int> values = {
      {cudaDevAttrComputeCapabilityMajor, properties.major},
      {cudaDevAttrComputeCapabilityMinor, properties.minor},
      {cudaDevAttrMultiProcessorCount, properties.multiProcessorCount},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin,
       static_cast<int>(properties.sharedMemPerBlockOptin)},
  };
  const auto found = values.find(name);
  if (found == values.end()) return cudaErrorInvalidValue;
  *value = found->second;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = fake_cuda().memory - fake_cuda().taken;
  *total = fake_cuda().memory;
  return on_gpu();
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (const cudaError_t code = on_gpu()) return code;
  if (fake_cuda().fragmented) return cudaErrorMemoryAllocation;
  *data = gpu_memory().take(bytes);
  fake_cuda().taken += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  fake_cuda().taken -= gpu_memory().give_back(data);
  return on_gpu();
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  *data = ::operator new (bytes, std::align_val_t{spillway::kPage});
  locked_memory().add(*data, bytes);
  return on_gpu();
}

cudaError_t cudaFreeHost(void* data) {
  locked_memory().remove(data);
  ::operator delete (data, std::align_val_t{spillway::kPage});
  return on_gpu();
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags) {
  if (const cudaError_t code = on_gpu()) return code;
  if (flags != cudaHostRegisterPortable || bytes == 0) return cudaErrorInvalidValue;
  // The memory must exist; otherwise it could not be locked.
  for (std::size_t i = 0; i < bytes; i += spillway::kPage) static_cast<volatile char*>(data)[i];
  if (fake_cuda().lockable != cudaSuccess) return fake_cuda().lockable;
  ++fake_cuda().locked;
  locked_memory().add(data, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* data) {
  --fake_cuda().locked;
  locked_memory().remove(data);
  return on_gpu();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const cudaError_t code = on_gpu()) return code;
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *stream = new CUstream_st;
  ++fake_cuda().streams;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  --fake_cuda().streams;
  return on_gpu();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++fake_cuda().waits;
  if (stream->unfinished > 0) stream->thread.record().wait();
  return on_gpu();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t code = on_gpu()) return code;
  stream->give([recorded = event->recorded] { recorded.wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t code = on_gpu()) return code;
  if ((flags & cudaEventDisableTiming) == 0) return cudaErrorInvalidValue;
  if ((flags & cudaEventBlockingSync) == 0) ++fake_cuda().spinning;
  *event = new CUevent_st;
  ++fake_cuda().events;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t code = on_gpu()) return code;
  if (event->gpu != stream->gpu) return cudaErrorInvalidResourceHandle;
  event->recorded = stream->thread.record();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  event->recorded.wait();
  return on_gpu();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t code = on_gpu()) return code;
  return event->recorded.done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --fake_cuda().events;
  return on_gpu();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (stream && stream->gpu == 0 && --fake_cuda().copies_left == 0) {
    fake_cuda().broken[0] = cudaErrorIllegalAddress;
  }
  const cudaError_t code =
      give(stream, [=] { std::memcpy(seen_by_gpu(to), seen_by_gpu(from), bytes); });
  if (code == cudaSuccess && stream && (is_pageable(to) || is_pageable(from))) {
    ++fake_cuda().pageable;
    stream->thread.record().wait();
  }
  return code;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return give(stream, [=] { std::memset(seen_by_gpu(to), value, bytes); });
}

}  // extern "C"
