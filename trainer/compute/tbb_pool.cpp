#include "trainer/compute/tbb_pool.h"

#include <utility>

namespace spillway {

TbbPool::~TbbPool() {
  std::unique_lock lock(mutex_);
  quiet_.wait(lock, [this] { return running_ == 0; });
}

void TbbPool::submit(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  arena_.enqueue([this, work = std::move(work)] {
    work();
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) quiet_.notify_all();
  });
}

}  // namespace spillway
