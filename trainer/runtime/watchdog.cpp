#include "trainer/runtime/watchdog.h"

#include <algorithm>
#include <chrono>

namespace spillway {
namespace {

constexpr std::chrono::seconds kNap(1);

}  // namespace

void Watchdog::expect(Clock::duration allowance) {
  deadline_ = Clock::now() + allowance;
  if (!sleeps_ || timer_.expiry() > *deadline_) sleep();
}

/// A sign of life moves the deadline, not the timer: that one is set again when it ends too early.
/// It ends every now and then: a process that was stopped (SIGSTOP, a frozen container) wakes late,
/// and what it waits for was stopped as long. The end of a timer may be under way already when the
/// watchdog goes.
void Watchdog::sleep() {
  sleeps_ = true;
  timer_.expires_at(std::min(*deadline_, Clock::now() + kNap));
  timer_.async_wait(
      [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& cancelled) {
        if (cancelled || alive.expired()) return;
        sleeps_ = false;
        if (!deadline_) return;
        const auto late = Clock::now() - timer_.expiry();
        if (late > kNap) *deadline_ += late;
        if (Clock::now() < *deadline_) return sleep();
        deadline_.reset();
        bark_();
      });
}

}  // namespace spillway
