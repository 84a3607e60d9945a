#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "core/peers/nccl/nccl_calls.h"

namespace spillway {

/// One way between two GPUs. One thread at a time uses it, whose GPU is that of its end.
class NcclWay {
 public:
  struct End {
    int gpu = 0;
    bool sends = false;  ///< else the other end does
    ncclUniqueId id{};   ///< of both ends
  };
  using Clock = std::chrono::steady_clock;

  /// Connects both ends. `closed`, which outlives this, ends all waits. Throws Error if there is no
  /// memory, PipeBroken if the other end has not come until `limit`.
  NcclWay(const End& end, Clock::time_point limit, const std::atomic<bool>& closed);
  ~NcclWay() { release(); }
  NcclWay(const NcclWay&) = delete;
  NcclWay& operator=(const NcclWay&) = delete;

  /// The other end receives as many bytes. After an exception, nothing touches them any more.
  /// Throws PipeBroken.
  void send(std::span<const std::byte> bytes);
  /// Returns before the bytes are there: see finish().
  void begin_receive(std::span<std::byte> bytes);
  void finish();
  /// Ends what has begun, and waits until nothing touches its bytes.
  void abort() noexcept;

 private:
  /// An area of GPU memory that parts pass one after the other.
  struct Area {
    std::byte* data = nullptr;
    cudaEvent_t filled = nullptr, emptied = nullptr;
    bool is_used = false;
  };
  using Stage = std::function<void(std::byte* area, std::size_t begin, std::size_t size)>;

  void create(const End& end);
  void release() noexcept;
  void pass(std::size_t bytes, cudaStream_t filling, const Stage& fill, cudaStream_t emptying,
            const Stage& empty);
  void settle(ncclResult_t result);
  void require_open() const;
  template <typename Work>
  void or_abort(const Work& work);

  const NcclCalls& nccl_;
  const std::atomic<bool>& closed_;
  std::optional<Clock::time_point> limit_;  // while both ends connect
  const int peer_;                          // rank of the other end
  ncclComm_t comm_ = nullptr;
  cudaStream_t copies_ = nullptr, travels_ = nullptr;
  std::array<Area, 2> areas_;
};

}  // namespace spillway
