#include "scheduler/simulation/copy_queues.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "spillway/ids.h"

namespace spillway {

LinkTimes::Span LinkTimes::take(double ready_s, double seconds) {
  constexpr std::size_t kMost = 64;
  double begin_s = std::max(ready_s, forgotten_s_);
  auto next = std::ranges::upper_bound(busy_, begin_s, {}, &Span::end_s);
  for (; next != busy_.end() && next->begin_s < begin_s + seconds; ++next) {
    begin_s = std::max(begin_s, next->end_s);
  }
  const Span taken{begin_s, begin_s + seconds};
  const bool follows = next != busy_.begin() && std::prev(next)->end_s == begin_s;
  if (follows) {
    std::prev(next)->end_s = taken.end_s;
  } else {
    busy_.insert(next, taken);
  }
  if (busy_.size() > kMost) {
    forgotten_s_ = busy_.front().end_s;
    busy_.erase(busy_.begin());
  }
  return taken;
}

/// The link is free again before the latency has passed. Copies of one queue begin after the end of
/// those before, as events report them.
CopyQueues::Span CopyQueues::over_host_link(const VirtualCosts& costs, HostLink& link,
                                            std::size_t device, Bytes bytes, double now_s) {
  const double begin_s = std::max(now_s + costs.dispatch_latency_s, link.free_s);
  link.free_s = begin_s + static_cast<double>(bytes) / costs.copy_rate_of(device);
  const double before_s = std::exchange(link.ended_s, link.free_s + costs.copy_latency_s);
  return {std::max(begin_s, before_s), link.ended_s};
}

CopyQueues::Span CopyQueues::overtake(const VirtualCosts& costs, std::size_t device, Bytes bytes,
                                      double now_s) {
  DeviceQueues& queues = devices_[device];
  const double seconds = static_cast<double>(bytes) / costs.copy_rate_of(device);
  const double begin_s = std::max(now_s + costs.dispatch_latency_s, queues.overtaking_free_s);
  queues.overtaking_free_s = begin_s + seconds;
  HostLink& link = queues.from_host;
  link.free_s = link.free_s > begin_s ? link.free_s + seconds : queues.overtaking_free_s;
  return {begin_s, queues.overtaking_free_s + costs.copy_latency_s};
}

CopyQueues::Span CopyQueues::from_device(const VirtualCosts& costs, std::size_t device,
                                         std::size_t other, Bytes bytes, double now_s) {
  DeviceQueues& queues = devices_[device];
  const int path = costs.links.path(other, device);
  Span span;
  if (path < 0) {
    span = overtake(costs, device, bytes, now_s);
  } else {
    const LinkTable::Path& link = costs.links.paths()[at(path)];
    const double rate = std::min(link.bytes_per_s, costs.copy_bytes_per_s);
    span =
        paths_[at(path)].take(now_s + costs.dispatch_latency_s, static_cast<double>(bytes) / rate);
    queues.link_cores = rate / costs.copy_bytes_per_s;
    queues.link_s = std::max(queues.link_s, span.end_s);
    span.end_s += link.latency_s + costs.copy_latency_s;
  }
  // Copies of one queue end in order.
  span.begin_s = std::max(span.begin_s, queues.from_devices_s);
  queues.from_devices_s = span.end_s = std::max(span.end_s, queues.from_devices_s);
  return span;
}

/// A copy over a slow link leaves its core free most of the time.
double CopyQueues::busy_cores(const VirtualCosts& costs, std::size_t device, double time_s) const {
  const DeviceQueues& queues = devices_[device];
  const double rate = costs.copy_rate_of(device) / costs.copy_bytes_per_s;
  return rate * ((queues.from_host.free_s > time_s) + (queues.to_host.free_s > time_s)) +
         (queues.link_s > time_s ? queues.link_cores : 0);
}

}  // namespace spillway
