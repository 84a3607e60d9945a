#pragma once

#include <cuda_runtime_api.h>

#include "core/base/mutex.h"
#include "core/device/device.h"

namespace spillway {

/// A point in a stream's order. It comes twice: when the thread that feeds the stream gets there,
/// from when on other streams can wait for it, and when the stream does. Only threads of its own
/// queue make and destroy what CUDA has of it.
class CudaEvent final : public Event::State {
 public:
  // Of the threads of its queue, in this order, each once.

  /// The end of what the stream has been given so far.
  cudaError_t record(cudaStream_t stream);
  /// Blocks until the stream is there, using no CPU. Where CUDA fails, it is there all the same:
  /// nobody may wait for ever.
  cudaError_t complete();

  bool done() const override;
  void wait(const std::stop_token& give_up) const override;

  /// Blocks until record(), or until `give_up` is asked to stop.
  void wait_recorded(const std::stop_token& give_up) const;
  /// What `stream` is given from here on waits for it, once it is recorded. The caller does not.
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
