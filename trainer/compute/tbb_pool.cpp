#include "trainer/compute/tbb_pool.h"

#include <utility>

namespace spillway {

TbbPool::~TbbPool() {
  const MutexLock lock(mutex_);
  quiet_.wait(mutex_, [this]() SPILLWAY_REQUIRES(mutex_) { return running_ == 0; });
}

void TbbPool::submit(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    ++running_;
  }
  arena_.enqueue([this, work = std::move(work)] {
    work();
    const MutexLock lock(mutex_);
    if (--running_ == 0) quiet_.notify_all();
  });
}

}  // namespace spillway
