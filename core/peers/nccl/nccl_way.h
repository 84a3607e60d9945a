#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>

#include "core/base/mutex.h"
#include "core/peers/nccl/nccl_calls.h"
#include "core/peers/nccl_pipe.h"

namespace spillway {

/// One way between two GPUs, for parts of at most kNcclArea. One thread at a time uses it, whose
/// GPU is that of its end. No call waits for the other end but those that say so.
class NcclWay {
 public:
  struct End {
    int gpu = 0;
    bool sends = false;  ///< else the other end does
    ncclUniqueId id{};   ///< of both ends
  };
  /// Parts that may have begun and not ended.
  static constexpr std::size_t kAreas = 2;

  /// Connects both ends: waits for the other one. `closed`, which outlives this, ends all waits.
  /// Throws Error if there is no memory; PipeBroken.
  NcclWay(const End& end, const std::atomic<bool>& closed);
  ~NcclWay();
  NcclWay(const NcclWay&) = delete;
  NcclWay& operator=(const NcclWay&) = delete;

  // Parts have numbers from 0, in order. They throw PipeBroken.

  /// The other end begins to receive as many bytes. They are copied before this returns.
  void begin_send(std::size_t part, std::span<const std::byte> bytes);
  void begin_receive(std::size_t part, std::size_t size);
  /// Waits until the part has been sent, or received.
  void finish(std::size_t part);
  /// Copies what was received.
  void take(std::size_t part, std::span<std::byte> bytes) const;

  /// Ends what has begun.
  void abort() noexcept;

 private:
  struct Area {
    std::byte *on_gpu = nullptr, *on_host = nullptr;
    cudaEvent_t half = nullptr, done = nullptr;  ///< of the two steps of a part
  };

  void create(const End& end);
  void release() noexcept;
  Area& area_of(std::size_t part) { return areas_[part % kAreas]; }
  void issue(const Area& area, std::size_t size);
  void settle(ncclResult_t result);

  const NcclCalls& nccl_;
  const std::atomic<bool>& closed_;
  const bool sends_;
  Mutex& issuing_;  // of the GPU
  ncclComm_t comm_ = nullptr;
  cudaStream_t copies_ = nullptr, travels_ = nullptr;
  std::array<Area, kAreas> areas_;
};

}  // namespace spillway
