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

/// A queue with its own thread, which sleeps while the queue is empty. Waiting for an event blocks
/// the thread.
class CpuQueue final : public Queue {
 public:
  struct Pace {
    double slowdown = 1;      ///< factor on the time of work
    Link* link = nullptr;     ///< of copies, outlives the queue; null: as fast as memory
    bool goes_first = false;  ///< copies overtake those of other queues on that link
  };
  /// `name` names the thread (the system keeps 15 characters). Once `abandoned` is requested to
  /// stop, work, copies and waits are skipped.
  explicit CpuQueue(const std::string& name, const Pace& pace = {1, nullptr, false},
                    std::stop_token abandoned = {});
  ~CpuQueue() override;
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  void enqueue(std::function<void()> work) override;
  void copy_async(void* to, const void* from, std::size_t bytes) override;
  void copy_over(Link& link, void* to, const void* from, std::size_t bytes) override;
  Event record() override;
  void wait(const Event& event) override;
  void notify(std::function<void()> done) override;

  /// Blocks while a copy is in progress.
  void finish_copy() const { const MutexLock lock(copying_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    std::function<void()> run;
    bool always = false;  ///< runs even after the queue is abandoned
  };

  void run() noexcept;
  void push(Item item);
  void push_copy(Link& link, bool goes_first, void* to, const void* from, std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// Copies, then sleeps until the copy has taken the link. The time starts when the link is free
  /// and the copy was `asked` for, so oversleeping does not delay the next copy.
  void copy_slowly(Link& link, bool goes_first, void* to, const void* from, std::size_t bytes,
                   Clock::time_point asked);
  /// Works, then sleeps until the work has taken `slowdown` times its CPU time. Time in which the
  /// work waits, above all for a core, counts. The next sleep compensates for oversleeping.
  void work_slowly(const std::function<void()>& work);
  void sleep_until(Clock::time_point time);
  /// The next item, or an empty one once the queue ends.
  Item next();

  using Seconds = std::chrono::duration<double>;

  const Pace pace_;
  const std::stop_token abandoned_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ SPILLWAY_GUARDED_BY(mutex_);
  bool ending_ SPILLWAY_GUARDED_BY(mutex_) = false;
  mutable Mutex copying_;           // held while bytes are copied
  Clock::time_point waited_until_;  // used by the queue's thread only
  Seconds owed_{0};                 // likewise
  std::thread thread_;              // last: it uses the others
};

}  // namespace spillway
