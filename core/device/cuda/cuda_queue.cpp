#include "core/device/cuda/cuda_queue.h"

#include <utility>

#include "core/device/cuda/cuda_event.h"
#include "core/device/cuda/gpu.h"

namespace spillway {

CudaQueue::CudaQueue(const std::string& name, int gpu, Waits waits, CudaHealth& health,
                     std::stop_token abandoned)
    : gpu_(gpu), waits_(waits), health_(health), abandoned_(std::move(abandoned)) {
  on_gpu(gpu, [&] {
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  });
  listener_ = std::make_unique<CpuQueue>(name + " end");
  feeder_ = std::make_unique<CpuQueue>(name, CpuQueue::Pace{}, abandoned_);
  for (CpuQueue* thread : {listener_.get(), feeder_.get()}) {
    thread->notify([this] { health_.note(cudaSetDevice(gpu_)); });
  }
}

/// Ends the feeder, then the listener, then waits for the remaining work.
CudaQueue::~CudaQueue() {
  feeder_.reset();
  listener_.reset();
  end_on_gpu(gpu_, [this] {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  });
}

void CudaQueue::copy_async(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  feeder_->enqueue([=, this] {
    const MutexLock lock(giving_copies_);
    if (abandoned_.stop_requested()) return;
    health_.note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  });
}

Event CudaQueue::record() {
  auto event = std::make_shared<CudaEvent>();
  feeder_->notify([this, event] {
    health_.note(event->record(stream_));
    listener_->notify([this, event] { health_.note(event->complete()); });
  });
  return Event(std::move(event));
}

void CudaQueue::notify(std::function<void()> done) {
  feeder_->notify([this, done = std::move(done)]() mutable {
    const auto event = std::make_shared<CudaEvent>();
    health_.note(event->record(stream_));
    listener_->notify([this, event, done = std::move(done)] {
      health_.note(event->complete());
      done();
    });
  });
}

/// The feeder waits for events of other kinds of devices, even if the stream waits for CUDA events.
void CudaQueue::wait(const Event& event) {
  if (event.done()) return;
  const auto ours = std::dynamic_pointer_cast<const CudaEvent>(event.state());
  if (!ours || waits_ == Waits::feeder) {
    return feeder_->enqueue([this, event] { event.wait(abandoned_); });
  }
  feeder_->enqueue([this, ours] {
    ours->wait_recorded(abandoned_);
    health_.note(ours->hold_up(stream_));
  });
}

/// Because of the lock, the feeder enqueues a copy either before this or never.
void CudaQueue::finish_copies() {
  const MutexLock lock(giving_copies_);
  health_.note(cudaStreamSynchronize(stream_));
}

}  // namespace spillway
