#include "trainer/compute/tbb_pool.h"

#include <algorithm>
#include <utility>

namespace spillway {

TbbPool::~TbbPool() {
  const MutexLock lock(mutex_);
  quiet_.wait(mutex_, [this]() SPILLWAY_REQUIRES(mutex_) { return busy_ == 0; });
}

void TbbPool::submit(int grains, std::function<void()> work) {
  const MutexLock lock(mutex_);
  waiting_.push_back({std::min(grains, num_threads_), std::move(work)});
  start_next();
}

void TbbPool::start_next() {
  while (!waiting_.empty() && busy_ < num_threads_) {
    Op op = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ += op.threads;
    arena_.enqueue([this, op = std::move(op)] {
      op.work();
      const MutexLock lock(mutex_);
      busy_ -= op.threads;
      start_next();
      if (busy_ == 0) quiet_.notify_all();
    });
  }
}

}  // namespace spillway
