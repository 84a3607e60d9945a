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

/// A stream with two threads of its own. One feeds it: it runs ahead of the stream, so that no
/// round trip to the host stands between dependent work. The other waits for it, and says what
/// has ended.
///
/// cudaLaunchHostFunc could say it too, but such a function may not call CUDA, which the end of
/// whatever it owns may do, and it is never called on a GPU that failed: a loss would go unheard.
class CudaQueue final : public Queue {
 public:
  /// Who waits for an event: the stream, or the thread that feeds it, so that whatever the stream
  /// was given can go on and abandoning it takes no longer than that.
  enum class Waits : bool { stream, feeder };

  /// `name` is the threads'. `health` outlives the queue. Throws CudaError where there is no
  /// stream.
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

  /// Of a queue whose feeder waits, once it is abandoned: blocks until no copy moves bytes.
  void finish_copies();

 private:
  const int gpu_;
  const Waits waits_;
  CudaHealth& health_;
  const std::stop_token abandoned_;
  Mutex giving_copies_;  // held while the stream is given a copy
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<CpuQueue> listener_, feeder_;  // the feeder ends first
};

}  // namespace spillway
