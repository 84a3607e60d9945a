#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/mutex.h"
#include "spillway/events.h"

namespace spillway {

/// The last events of a session. Thread-safe.
class EventList {
 public:
  /// Keeps at most `capacity` events, at least 1.
  explicit EventList(std::size_t capacity) : capacity_(capacity) {}

  /// Gives the event the next number, from 1.
  void add(SessionEvent event);
  /// The kept events after number `sequence`. Waits up to `wait_s` seconds for the first.
  std::vector<SessionEvent> poll(std::uint64_t sequence, double wait_s) const;

 private:
  const std::size_t capacity_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::deque<SessionEvent> events_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t num_events_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // including those not kept
};

}  // namespace spillway
