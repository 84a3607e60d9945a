#pragma once

#include <chrono>
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
  /// `name` is the thread's, cut to the 15 characters that the system keeps. With
  /// `link_bytes_per_s` above 0 copies go no faster than that.
  explicit CpuQueue(const std::string& name, Bytes link_bytes_per_s = 0);
  ~CpuQueue() override;
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  void enqueue(std::function<void()> work) override;
  void copy_async(void* to, const void* from, std::size_t bytes) override;
  Event record() override;
  void wait(const Event& event) override;
  void notify(std::function<void()> done) override;

 private:
  using Clock = std::chrono::steady_clock;

  void run() noexcept;
  /// Copies, then sleeps until the link has passed the bytes. The link goes on at once with what
  /// was `asked` for in time, so a sleep that was too long costs nothing.
  void copy_by_link(void* to, const void* from, std::size_t bytes, Clock::time_point asked);
  /// The next piece of work, or an empty function once the queue ends.
  std::function<void()> next();

  std::mutex mutex_;  // guards work_ and ending_
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ending_ = false;
  const Bytes link_bytes_per_s_;
  Clock::time_point link_free_at_;  // of the queue's thread
  std::thread thread_;              // last: it uses the others
};

}  // namespace spillway
