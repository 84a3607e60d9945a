#include "trainer/session/event_list.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace spillway {

void EventList::add(SessionEvent event) {
  const MutexLock lock(mutex_);
  event.sequence = ++num_events_;
  events_.push_back(std::move(event));
  if (events_.size() > capacity_) events_.pop_front();
  changed_.notify_all();
}

std::vector<SessionEvent> EventList::poll(std::uint64_t sequence, double wait_s) const {
  const MutexLock lock(mutex_);
  changed_.wait_for(mutex_, std::chrono::duration<double>(wait_s),
                    [&]() SPILLWAY_REQUIRES(mutex_) { return num_events_ > sequence; });
  const auto after = std::ranges::upper_bound(events_, sequence, {}, &SessionEvent::sequence);
  return {after, events_.end()};
}

}  // namespace spillway
