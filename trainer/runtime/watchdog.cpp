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

/// A sign of life moves the deadline, not the timer, which is set again if it expires too early.
/// The timer fires periodically, so time in which the whole process was stopped (SIGSTOP, a frozen
/// container) does not count. A handler may still be queued when the watchdog is destroyed.
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
        on_timeout_();
      });
}

}  // namespace spillway
