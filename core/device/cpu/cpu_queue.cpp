#include "core/device/cpu/cpu_queue.h"

#include <pthread.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <utility>

#include "core/base/default_floats.h"
#include "core/base/thread_cpu_time.h"

namespace spillway {
namespace {

class CpuEvent final : public Event::State {
 public:
  bool done() const override {
    const MutexLock lock(mutex_);
    return done_;
  }
  void wait(const std::stop_token& give_up) const override {
    const MutexLock lock(mutex_);
    happened_.wait(mutex_, give_up, [this]() SPILLWAY_REQUIRES(mutex_) { return done_; });
  }
  void happen() {
    {
      const MutexLock lock(mutex_);
      done_ = true;
    }
    happened_.notify_all();
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar happened_;
  bool done_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace

CpuQueue::CpuQueue(const std::string& name, const Pace& pace, std::stop_token abandoned)
    : pace_(pace), abandoned_(std::move(abandoned)), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

CpuQueue::~CpuQueue() {
  assert(std::this_thread::get_id() != thread_.get_id());
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CpuQueue::push(Item item) {
  {
    const MutexLock lock(mutex_);
    items_.push_back(std::move(item));
  }
  changed_.notify_one();
}

void CpuQueue::enqueue(std::function<void()> work) {
  if (pace_.slowdown == 1) return push({std::move(work)});
  push({[this, work = std::move(work)] { work_slowly(work); }});
}

void CpuQueue::work_slowly(const std::function<void()>& work) {
  const auto begin = Clock::now();
  const auto cpu_begin = thread_cpu_time();
  work();
  const auto takes = pace_.slowdown * (thread_cpu_time() - cpu_begin);
  const auto from = Clock::now();
  owed_ += std::max<Seconds>(takes - (from - begin), Seconds(0));
  sleep_until(from + std::chrono::duration_cast<Clock::duration>(owed_));
  owed_ -= Clock::now() - from;
}

void CpuQueue::copy_async(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (pace_.link) return push_copy(*pace_.link, pace_.goes_first, to, from, bytes);
  push({[=, this] { copy(to, from, bytes); }});
}

void CpuQueue::copy_over(Link& link, void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) push_copy(link, /*goes_first=*/false, to, from, bytes);
}

void CpuQueue::push_copy(Link& link, bool goes_first, void* to, const void* from,
                         std::size_t bytes) {
  push({[=, this, &link, asked = Clock::now()] {
    copy_slowly(link, goes_first, to, from, bytes, asked);
  }});
}

/// The lock makes abandon() wait for a copy in progress; later copies are skipped.
void CpuQueue::copy(void* to, const void* from, std::size_t bytes) const {
  const MutexLock lock(copying_);
  if (!abandoned_.stop_requested()) std::memcpy(to, from, bytes);
}

void CpuQueue::copy_slowly(Link& link, bool goes_first, void* to, const void* from,
                           std::size_t bytes, Clock::time_point asked) {
  const Clock::time_point begin = std::max(asked, waited_until_);
  const Link::Passage passage = goes_first ? link.overtake(bytes, begin) : link.take(bytes, begin);
  copy(to, from, bytes);
  Clock::time_point arrives = link.arrival(passage);
  while (Clock::now() < arrives && !abandoned_.stop_requested()) {
    sleep_until(arrives);
    arrives = link.arrival(passage);  // others may have overtaken it meanwhile
  }
}

/// Returns early if the queue is abandoned.
void CpuQueue::sleep_until(Clock::time_point time) {
  Mutex mutex;
  const MutexLock lock(mutex);
  CondVar never;
  never.wait_until(mutex, abandoned_, time, [] { return false; });
}

Event CpuQueue::record() {
  auto event = std::make_shared<CpuEvent>();
  push({[event] { event->happen(); }, /*always=*/true});
  return Event(std::move(event));
}

void CpuQueue::wait(const Event& event) {
  if (event.done()) return;
  push({[this, event] {
    event.wait(abandoned_);
    waited_until_ = Clock::now();
  }});
}

void CpuQueue::notify(std::function<void()> done) { push({std::move(done), /*always=*/true}); }

CpuQueue::Item CpuQueue::next() {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [this]() SPILLWAY_REQUIRES(mutex_) { return ending_ || !items_.empty(); });
  if (items_.empty()) return {};
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

void CpuQueue::run() noexcept {
  const DefaultFloats floats;
  for (Item item = next(); item.run; item = {}, item = next()) {
    if (item.always || !abandoned_.stop_requested()) item.run();
  }
}

}  // namespace spillway
