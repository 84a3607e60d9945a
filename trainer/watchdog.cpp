#include "trainer/watchdog.h"

namespace spillway {

void Watchdog::expect(Clock::duration allowance) {
  deadline_ = Clock::now() + allowance;
  if (!sleeps_ || timer_.expiry() > *deadline_) sleep();
}

/// A sign of life moves the deadline, not the timer: that one is set again when it ends too early.
/// The end of a timer may be under way already when the watchdog goes.
void Watchdog::sleep() {
  sleeps_ = true;
  timer_.expires_at(*deadline_);
  timer_.async_wait(
      [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& cancelled) {
        if (cancelled || alive.expired()) return;
        sleeps_ = false;
        if (!deadline_) return;
        if (Clock::now() < *deadline_) return sleep();
        deadline_.reset();
        bark_();
      });
}

}  // namespace spillway
