#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <stop_token>
#include <string>

#include "core/base/mutex.h"
#include "core/device/cpu/cpu_queue.h"
#include "core/device/cuda/cuda_health.h"
#include "core/device/device.h"

namespace spillway {

/// A stream with two threads. The feeder runs ahead of the stream, so that dependent work needs no
/// round trip to the host. The listener waits for the stream and reports completions.
///
/// cudaLaunchHostFunc cannot report them: its function may not call CUDA, which the destructors of
/// its captures may do, and it is never called on a failed GPU, so a loss would go unnoticed.
class CudaQueue final : public Queue {
 public:
  /// The side that waits for an event: the stream, or the feeder. If the feeder waits, the stream
  /// can finish its work, and abandoning it takes no longer.
  enum class Waits : bool { stream, feeder };

  /// `name` names the threads. `health` outlives the queue. Throws CudaError if no stream can be
  /// created.
  CudaQueue(const std::string& name, int gpu, Waits waits, CudaHealth& health,
            std::stop_token abandoned);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void enqueue(std::function<void()> work) override { feeder_->enqueue(std::move(work)); }
  void copy_async(void* to, const void* from, std::size_t bytes) override;
  Event record() override;
  void wait(const Event& event) override;
  void notify(std::function<void()> done) override;
  void* stream() const override { return stream_; }

  /// Blocks until no copy is in progress. The queue is abandoned, and its feeder waits for events.
  void finish_copies();

 private:
  const int gpu_;
  const Waits waits_;
  CudaHealth& health_;
  const std::stop_token abandoned_;
  Mutex giving_copies_;  // held while a copy is enqueued on the stream
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<CpuQueue> listener_, feeder_;  // the feeder ends first
};

}  // namespace spillway
