#include "core/cpu/cpu_queue.h"

#include <pthread.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <utility>

namespace spillway {
namespace {

class CpuEvent final : public Event::State {
 public:
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() const override {
    std::unique_lock lock(mutex_);
    happened_.wait(lock, [this] { return done_; });
  }
  void happen() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    happened_.notify_all();
  }

 private:
  mutable std::mutex mutex_;  // guards done_
  mutable std::condition_variable happened_;
  bool done_ = false;
};

}  // namespace

CpuQueue::CpuQueue(const std::string& name, Bytes link_bytes_per_s)
    : link_bytes_per_s_(link_bytes_per_s), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

CpuQueue::~CpuQueue() {
  assert(std::this_thread::get_id() != thread_.get_id());
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CpuQueue::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void CpuQueue::copy_async(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (link_bytes_per_s_ == 0) {
    enqueue([=] { std::memcpy(to, from, bytes); });
  } else {
    enqueue([=, this, asked = Clock::now()] { copy_by_link(to, from, bytes, asked); });
  }
}

void CpuQueue::copy_by_link(void* to, const void* from, std::size_t bytes,
                            Clock::time_point asked) {
  const std::chrono::duration<double> least(static_cast<double>(bytes) /
                                            static_cast<double>(link_bytes_per_s_));
  link_free_at_ = std::max(asked, link_free_at_) + std::chrono::ceil<Clock::duration>(least);
  std::memcpy(to, from, bytes);
  std::this_thread::sleep_until(link_free_at_);
}

Event CpuQueue::record() {
  auto event = std::make_shared<CpuEvent>();
  enqueue([event] { event->happen(); });
  return Event(std::move(event));
}

void CpuQueue::wait(const Event& event) {
  if (event.done()) return;
  enqueue([this, event] {
    event.wait();
    link_free_at_ = std::max(link_free_at_, Clock::now());
  });
}

void CpuQueue::notify(std::function<void()> done) { enqueue(std::move(done)); }

std::function<void()> CpuQueue::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
  if (work_.empty()) return {};
  auto work = std::move(work_.front());
  work_.pop_front();
  return work;
}

void CpuQueue::run() noexcept {
  while (auto work = next()) work();
}

}  // namespace spillway
