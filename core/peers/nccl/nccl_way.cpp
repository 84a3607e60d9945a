#include "core/peers/nccl/nccl_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "core/peers/nccl_pipe.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr auto kPause = std::chrono::microseconds(50);

void require_good(cudaError_t code) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw PipeBroken(cudaGetErrorString(code));
}

}  // namespace

NcclWay::NcclWay(const End& end, Clock::time_point limit, const std::atomic<bool>& closed)
    : nccl_(nccl_calls()), closed_(closed), limit_(limit), peer_(end.sends ? 1 : 0) {
  try {
    create(end);
    // NCCL connects two ends when they first exchange something.
    or_abort([&] {
      settle(end.sends ? nccl_.send(areas_[0].data, 1, ncclUint8, peer_, comm_, travels_)
                       : nccl_.receive(areas_[0].data, 1, ncclUint8, peer_, comm_, travels_));
      finish();
    });
  } catch (...) {
    release();
    throw;
  }
  limit_.reset();
}

void NcclWay::create(const End& end) {
  for (cudaStream_t* stream : {&copies_, &travels_}) {
    require_good(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }
  for (Area& area : areas_) {
    void* data = nullptr;
    if (cudaMalloc(&data, kNcclArea) != cudaSuccess) {
      cudaGetLastError();
      throw Error(
          fmt::format("GPU {} has no memory left for NCCL; lower its memory in devices", end.gpu));
    }
    area.data = static_cast<std::byte*>(data);
    for (cudaEvent_t* event : {&area.filled, &area.emptied}) {
      require_good(cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventBlockingSync));
    }
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that no call waits for an end that is lost
  settle(nccl_.comm_init(&comm_, 2, end.id, 1 - peer_, &config));
}

void NcclWay::release() noexcept {
  abort();
  for (Area& area : areas_) {
    for (cudaEvent_t event : {area.filled, area.emptied}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (area.data != nullptr) cudaFree(area.data);
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

template <typename Work>
void NcclWay::or_abort(const Work& work) {
  if (comm_ == nullptr) throw PipeBroken("NCCL: the connection was ended");
  try {
    work();
  } catch (...) {
    abort();
    throw;
  }
}

void NcclWay::send(std::span<const std::byte> bytes) {
  or_abort([&] {
    pass(
        bytes.size(), copies_,
        [&](std::byte* area, std::size_t begin, std::size_t size) {
          require_good(
              cudaMemcpyAsync(area, bytes.data() + begin, size, cudaMemcpyDefault, copies_));
        },
        travels_,
        [&](std::byte* area, std::size_t, std::size_t size) {
          settle(nccl_.send(area, size, ncclUint8, peer_, comm_, travels_));
        });
    finish();
  });
}

void NcclWay::begin_receive(std::span<std::byte> bytes) {
  or_abort([&] {
    pass(
        bytes.size(), travels_,
        [&](std::byte* area, std::size_t, std::size_t size) {
          settle(nccl_.receive(area, size, ncclUint8, peer_, comm_, travels_));
        },
        copies_,
        [&](std::byte* area, std::size_t begin, std::size_t size) {
          require_good(
              cudaMemcpyAsync(bytes.data() + begin, area, size, cudaMemcpyDefault, copies_));
        });
  });
}

/// Nothing here waits for a stream: one fills an area once the other has emptied it.
void NcclWay::pass(std::size_t bytes, cudaStream_t filling, const Stage& fill,
                   cudaStream_t emptying, const Stage& empty) {
  for (std::size_t begin = 0; begin < bytes; begin += kNcclArea) {
    Area& area = areas_[begin / kNcclArea % areas_.size()];
    const std::size_t size = std::min<std::size_t>(kNcclArea, bytes - begin);
    if (area.is_used) require_good(cudaStreamWaitEvent(filling, area.emptied, 0));
    fill(area.data, begin, size);
    require_good(cudaEventRecord(area.filled, filling));
    require_good(cudaStreamWaitEvent(emptying, area.filled, 0));
    empty(area.data, begin, size);
    require_good(cudaEventRecord(area.emptied, emptying));
    area.is_used = true;
  }
}

void NcclWay::finish() {
  or_abort([&] {
    for (cudaStream_t stream : {travels_, copies_}) {
      for (;;) {
        const cudaError_t code = cudaStreamQuery(stream);
        if (code == cudaSuccess) break;
        if (code != cudaErrorNotReady) require_good(code);
        cudaGetLastError();  // which it may have become
        settle(ncclInProgress);
      }
    }
  });
}

/// Until a call has had its effect.
void NcclWay::settle(ncclResult_t result) {
  while (result == ncclInProgress) {
    require_open();
    std::this_thread::sleep_for(kPause);
    const ncclResult_t asked = nccl_.comm_error(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result != ncclSuccess) throw PipeBroken(fmt::format("NCCL: {}", nccl_.text_of(result)));
}

void NcclWay::require_open() const {
  if (closed_) throw PipeBroken("NCCL: the connection was ended");
  if (limit_ && Clock::now() > *limit_) throw PipeBroken("NCCL: the GPUs are not connected");
}

}  // namespace spillway
