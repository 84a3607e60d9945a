#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/device.h"

namespace spillway {

/// A queue with a thread of its own, which sleeps while there is nothing to do. Waiting for an
/// event blocks that thread.
class CpuQueue final : public Queue {
 public:
  /// `name` is the thread's, cut to the 15 characters that the system keeps.
  explicit CpuQueue(const std::string& name);
  ~CpuQueue() override;
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  void enqueue(std::function<void()> work) override;
  void copy_async(void* to, const void* from, std::size_t bytes) override;
  Event record() override;
  void wait(const Event& event) override;
  void notify(std::function<void()> done) override;

 private:
  void run() noexcept;
  /// The next piece of work, or an empty function once the queue ends.
  std::function<void()> next();

  std::mutex mutex_;  // guards work_ and ending_
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace spillway
