#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "core/base/mutex.h"
#include "core/device/device.h"

namespace spillway {

/// A queue with a thread of its own, which sleeps while there is nothing to do. Waiting for an
/// event blocks that thread.
class CpuQueue final : public Queue {
 public:
  /// `name` is the thread's, cut to the 15 characters that the system keeps. Copies heed the
  /// link, work the slowdown. Once `abandoned` is asked to stop, work, copies and waits are
  /// skipped.
  explicit CpuQueue(const std::string& name, const CpuSwitches& switches = {},
                    std::stop_token abandoned = {});
  ~CpuQueue() override;
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  void enqueue(std::function<void()> work) override;
  void copy_async(void* to, const void* from, std::size_t bytes) override;
  Event record() override;
  void wait(const Event& event) override;
  void notify(std::function<void()> done) override;

  /// Blocks while a copy is in progress.
  void finish_copy() const { const MutexLock lock(copying_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    std::function<void()> run;
    bool always = false;  ///< also once the queue is abandoned
  };

  void run() noexcept;
  void push(Item item);
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// Copies, then sleeps until the link has passed the bytes. The link goes on at once with what
  /// was `asked` for in time, so a sleep that was too long costs nothing.
  void copy_by_link(void* to, const void* from, std::size_t bytes, Clock::time_point asked);
  /// Works, then sleeps for what the work's CPU time lacks. A sleep that was too long is made up
  /// for by the next.
  void work_slowly(const std::function<void()>& work);
  void sleep_until(Clock::time_point time);
  /// The next item, or an empty one once the queue ends.
  Item next();

  const CpuSwitches switches_;
  const std::stop_token abandoned_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ SPILLWAY_GUARDED_BY(mutex_);
  bool ending_ SPILLWAY_GUARDED_BY(mutex_) = false;
  mutable Mutex copying_;                  // held while bytes are copied
  Clock::time_point link_free_at_;         // of the queue's thread
  std::chrono::duration<double> owed_{0};  // likewise
  std::thread thread_;                     // last: it uses the others
};

}  // namespace spillway
