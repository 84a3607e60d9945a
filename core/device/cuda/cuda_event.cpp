#include "core/device/cuda/cuda_event.h"

namespace spillway {

bool CudaEvent::done() const {
  const MutexLock lock(mutex_);
  return state_ == State::done;
}

void CudaEvent::wait(const std::stop_token& give_up) const { wait_for(State::done, give_up); }

void CudaEvent::wait_recorded(const std::stop_token& give_up) const {
  wait_for(State::recorded, give_up);
}

void CudaEvent::wait_for(State state, const std::stop_token& give_up) const {
  const MutexLock lock(mutex_);
  moved_on_.wait(mutex_, give_up, [&]() SPILLWAY_REQUIRES(mutex_) { return state_ >= state; });
}

void CudaEvent::move_on(State state) {
  {
    const MutexLock lock(mutex_);
    state_ = state;
  }
  moved_on_.notify_all();
}

cudaError_t CudaEvent::record(cudaStream_t stream) {
  // Without cudaEventBlockingSync a thread that waits would spin.
  cudaError_t code =
      cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync);
  if (code == cudaSuccess) code = cudaEventRecord(event_, stream);
  move_on(State::recorded);
  return code;
}

cudaError_t CudaEvent::complete() {
  const cudaError_t code = event_ ? cudaEventSynchronize(event_) : cudaSuccess;
  move_on(State::done);
  if (event_) cudaEventDestroy(event_);
  return code;
}

cudaError_t CudaEvent::hold_up(cudaStream_t stream) const {
  const MutexLock lock(mutex_);
  if (state_ != State::recorded || !event_) return cudaSuccess;
  return cudaStreamWaitEvent(stream, event_, 0);
}

}  // namespace spillway
