#pragma once

#include <cuda_runtime_api.h>

#include "core/base/mutex.h"
#include "core/device/device.h"

namespace spillway {

/// A point in a stream's order. First the thread that feeds the stream records it, after which
/// other streams can wait for it; then the stream reaches it. Only threads of its own queue create
/// and destroy the CUDA event.
class CudaEvent final : public Event::State {
 public:
  // The threads of its queue call these two, in this order, once each.

  /// Records the end of the stream's work so far.
  cudaError_t record(cudaStream_t stream);
  /// Blocks until the stream reaches the event, using no CPU. If CUDA fails, the event completes
  /// too, so that nobody waits forever.
  cudaError_t complete();

  bool done() const override;
  void wait(const std::stop_token& give_up) const override;

  /// Blocks until record(), or until `give_up` is asked to stop.
  void wait_recorded(const std::stop_token& give_up) const;
  /// Makes later work of `stream` wait for a recorded event. The caller does not wait.
  cudaError_t hold_up(cudaStream_t stream) const;

 private:
  enum class State : std::uint8_t { before, recorded, done };
  void move_on(State state);
  void wait_for(State state, const std::stop_token& give_up) const;

  mutable Mutex mutex_;
  mutable CondVar moved_on_;
  State state_ SPILLWAY_GUARDED_BY(mutex_) = State::before;
  cudaEvent_t event_ = nullptr;  // others read it under mutex_, while it is recorded
};

}  // namespace spillway
