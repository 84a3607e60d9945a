#include "core/peers/nccl/nccl_way.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <thread>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr auto kPause = std::chrono::microseconds(50);

void require_good(cudaError_t code) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw PipeFailed(cudaGetErrorString(code));
}

/// What cannot be allocated is for the user to change.
void require_memory(cudaError_t code, const char* what, int gpu) {
  if (code != cudaErrorMemoryAllocation) return require_good(code);
  cudaGetLastError();
  throw Error(fmt::format("there is no {} left for NCCL on GPU {}; lower its memory in devices",
                          what, gpu));
}

/// Threads may not use communicators of one GPU at the same time.
Mutex& issuing_on(int gpu) {
  static Mutex mutex;
  static std::map<int, Mutex> all SPILLWAY_GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  return all[gpu];
}

}  // namespace

NcclWay::NcclWay(const End& end, const std::atomic<bool>& closed)
    : nccl_(nccl_calls()), closed_(closed), sends_(end.sends), issuing_(issuing_on(end.gpu)) {
  try {
    create(end);
    // NCCL connects two ends when they first exchange something.
    const std::byte any{};
    if (sends_) {
      begin_send(0, std::span(&any, 1));
    } else {
      begin_receive(0, 1);
    }
    finish(0);
  } catch (...) {
    release();
    throw;
  }
}

NcclWay::~NcclWay() { release(); }

void NcclWay::create(const End& end) {
  for (cudaStream_t* stream : {&copies_, &travels_}) {
    require_good(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }
  for (Area& area : areas_) {
    void *on_gpu = nullptr, *on_host = nullptr;
    require_memory(cudaMalloc(&on_gpu, kNcclArea), "GPU memory", end.gpu);
    area.on_gpu = static_cast<std::byte*>(on_gpu);
    require_memory(cudaHostAlloc(&on_host, kNcclArea, cudaHostAllocDefault), "host memory",
                   end.gpu);
    area.on_host = static_cast<std::byte*>(on_host);
    for (cudaEvent_t* event : {&area.half, &area.done}) {
      require_good(cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventBlockingSync));
    }
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that no call waits for an end that is lost
  config.maxCTAs = 4;   // so that those of all hosts fit beside what trains
  settle(nccl_.comm_init(&comm_, 2, end.id, sends_ ? 0 : 1, &config));
}

void NcclWay::release() noexcept {
  abort();
  for (Area& area : areas_) {
    for (cudaEvent_t event : {area.half, area.done}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (area.on_host != nullptr) cudaFreeHost(area.on_host);
    if (area.on_gpu != nullptr) cudaFree(area.on_gpu);
  }
  for (cudaStream_t stream : {copies_, travels_}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

void NcclWay::abort() noexcept {
  if (comm_ != nullptr) nccl_.comm_abort(comm_);
  comm_ = nullptr;
  for (cudaStream_t stream : {travels_, copies_}) {
    if (stream != nullptr) cudaStreamSynchronize(stream);
  }
}

void NcclWay::begin_send(std::size_t part, std::span<const std::byte> bytes) {
  const Area& area = area_of(part);
  std::memcpy(area.on_host, bytes.data(), bytes.size());
  require_good(
      cudaMemcpyAsync(area.on_gpu, area.on_host, bytes.size(), cudaMemcpyHostToDevice, copies_));
  require_good(cudaEventRecord(area.half, copies_));
  require_good(cudaStreamWaitEvent(travels_, area.half, 0));
  issue(area, bytes.size());
  require_good(cudaEventRecord(area.done, travels_));
}

void NcclWay::begin_receive(std::size_t part, std::size_t size) {
  const Area& area = area_of(part);
  issue(area, size);
  require_good(cudaEventRecord(area.half, travels_));
  require_good(cudaStreamWaitEvent(copies_, area.half, 0));
  require_good(cudaMemcpyAsync(area.on_host, area.on_gpu, size, cudaMemcpyDeviceToHost, copies_));
  require_good(cudaEventRecord(area.done, copies_));
}

void NcclWay::issue(const Area& area, std::size_t size) {
  const MutexLock lock(issuing_);
  if (comm_ == nullptr) throw PipeBroken("NCCL: the connection was ended");
  settle(sends_ ? nccl_.send(area.on_gpu, size, ncclUint8, 1, comm_, travels_)
                : nccl_.receive(area.on_gpu, size, ncclUint8, 0, comm_, travels_));
}

void NcclWay::finish(std::size_t part) {
  for (;;) {
    const cudaError_t code = cudaEventQuery(area_of(part).done);
    if (code == cudaSuccess) return;
    if (code != cudaErrorNotReady) require_good(code);
    cudaGetLastError();      // it may count as an error
    settle(ncclInProgress);  // a pause; throws if something has failed meanwhile
  }
}

void NcclWay::take(std::size_t part, std::span<std::byte> bytes) const {
  std::memcpy(bytes.data(), areas_[part % kAreas].on_host, bytes.size());
}

/// Waits until a call has had its effect.
void NcclWay::settle(ncclResult_t result) {
  while (result == ncclInProgress) {
    if (closed_) throw PipeBroken("NCCL: the connection was ended");
    std::this_thread::sleep_for(kPause);
    const ncclResult_t asked = nccl_.comm_error(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result != ncclSuccess) throw PipeFailed(fmt::format("NCCL: {}", nccl_.text_of(result)));
}

}  // namespace spillway
