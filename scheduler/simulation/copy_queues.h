#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/simulation/virtual_costs.h"
#include "spillway/units.h"

namespace spillway {

/// When copies take a link between devices, one after another. Requests that come in another order
/// than that of their times, as in a pass over a step, take the first gap.
class LinkTimes {
 public:
  struct Span {
    double begin_s = 0, end_s = 0;
  };
  /// The first span of `seconds` that begins at `ready_s` or later.
  Span take(double ready_s, double seconds);

 private:
  std::vector<Span> busy_;  // the latest ones, by time, apart from each other
  double forgotten_s_ = 0;  // the end of those before
};

/// The copy queues of devices and their links in a virtual run.
class CopyQueues {
 public:
  using Span = LinkTimes::Span;

  CopyQueues(const VirtualCosts& costs, std::size_t num_devices)
      : devices_(num_devices), paths_(costs.links.paths().size()) {}

  void resize(std::size_t num_devices) { devices_.resize(num_devices); }
  /// A copy between a device and the host that is requested at `now_s`.
  Span from_host(const VirtualCosts& costs, std::size_t device, Bytes bytes, double now_s) {
    return over_host_link(costs, devices_[device].from_host, device, bytes, now_s);
  }
  Span to_host(const VirtualCosts& costs, std::size_t device, Bytes bytes, double now_s) {
    return over_host_link(costs, devices_[device].to_host, device, bytes, now_s);
  }
  /// A copy from another device. Where it shares the link with copies from the host, it goes first.
  /// Copies from the host that were requested before it keep their ends, which are known; later
  /// ones wait for it.
  Span from_device(const VirtualCosts& costs, std::size_t device, std::size_t other, Bytes bytes,
                   double now_s);
  /// How many cores the copies to and from the device use.
  double busy_cores(const VirtualCosts& costs, std::size_t device, double time_s) const;

 private:
  struct HostLink {
    double free_s = 0;   ///< when the next copy may take it
    double ended_s = 0;  ///< when the last copy has ended
  };
  struct DeviceQueues {
    HostLink from_host, to_host;
    double from_devices_s = 0;          ///< when its last copy from a device has ended
    double overtaking_free_s = 0;       ///< when the next one may take the link with the host
    double link_s = 0, link_cores = 0;  ///< of copies over links between devices
  };

  static Span over_host_link(const VirtualCosts& costs, HostLink& link, std::size_t device,
                             Bytes bytes, double now_s);
  Span overtake(const VirtualCosts& costs, std::size_t device, Bytes bytes, double now_s);

  std::vector<DeviceQueues> devices_;
  std::vector<LinkTimes> paths_;
};

}  // namespace spillway
