#pragma once

#include <chrono>
#include <thread>

#include "core/base/mutex.h"
#include "core/peers/pipe.h"

namespace spillway {

/// Closes a pipe, which outlives this, unless it is stopped in time.
class Deadline {
 public:
  Deadline(Pipe& pipe, std::chrono::milliseconds limit)
      : thread_([this, &pipe,
                 end = std::chrono::steady_clock::now() + limit](const std::stop_token& stop) {
          const MutexLock lock(mutex_);
          const auto never = [] { return false; };
          never_.wait_until(mutex_, stop, end, never);
          if (stop.stop_requested()) return;
          is_over_ = true;
          pipe.close();
        }) {}
  /// False if the time is over.
  bool stop() {
    thread_ = {};
    const MutexLock lock(mutex_);
    return !is_over_;
  }

 private:
  Mutex mutex_;
  CondVar never_;
  bool is_over_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace spillway
