#include "tests/support/fake_cudart.h"

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "core/cpu/cpu_queue.h"
#include "core/cuda/cuda_error.h"

using spillway::Bytes;
using spillway::testing::fake_cuda;

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

/// Of memory, so that its size is known where it is given back. As far from a page as CUDA may be.
struct alignas(256) Header {
  Bytes bytes = 0;
};

/// How the thread's GPU is; the first where it has set none, as in CUDA.
cudaError_t state() { return fake_cuda().broken.at(current_gpu > 0 ? 1 : 0); }

/// Calls that a GPU takes part in begin with it.
cudaError_t on_gpu() {
  if (current_gpu < 0) ++fake_cuda().on_no_gpu;
  return state();
}

}  // namespace

namespace spillway::testing {

FakeCuda& fake_cuda() {
  static FakeCuda machine;
  return machine;
}

void launch(void* stream, std::function<void()> kernel) {
  require(on_gpu(), "launch");
  static_cast<cudaStream_t>(stream)->give(std::move(kernel));
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

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int) {
  const int capability = fake_cuda().capability;
  *value = name == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int gpu) {
  *properties = {};
  properties->name[0] = static_cast<char>('A' + (fake_cuda().alike ? 0 : gpu));
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
  auto* const memory =
      static_cast<std::byte*>(::operator new (bytes + sizeof(Header), std::align_val_t{256}));
  new (memory) Header{bytes};
  fake_cuda().taken += bytes;
  *data = memory + sizeof(Header);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  auto* const memory = static_cast<std::byte*>(data) - sizeof(Header);
  fake_cuda().taken -= reinterpret_cast<Header*>(memory)->bytes;
  ::operator delete (memory, std::align_val_t{256});
  return on_gpu();
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags) {
  if (const cudaError_t code = on_gpu()) return code;
  if (flags != cudaHostRegisterPortable || bytes == 0) return cudaErrorInvalidValue;
  // It must be there: what is not could not be locked.
  for (std::size_t i = 0; i < bytes; i += spillway::kPage) static_cast<volatile char*>(data)[i];
  if (fake_cuda().lockable == cudaSuccess) ++fake_cuda().locked;
  return fake_cuda().lockable;
}

cudaError_t cudaHostUnregister(void*) {
  --fake_cuda().locked;
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
  if (flags != (cudaEventDisableTiming | cudaEventBlockingSync)) return cudaErrorInvalidValue;
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

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --fake_cuda().events;
  return on_gpu();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (stream->gpu == 0 && --fake_cuda().copies_left == 0) {
    fake_cuda().broken[0] = cudaErrorIllegalAddress;
  }
  if (const cudaError_t code = on_gpu()) return code;
  if (kind != cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  stream->give([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t code = on_gpu()) return code;
  stream->give([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"
