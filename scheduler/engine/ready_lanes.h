#pragma once

#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "spillway/ids.h"

namespace spillway {

/// A lane whose next unit may be claimed, with the policy's priority of that unit.
struct ReadyLane {
  double priority = 0;
  JobId job;
  int lane = 0;
  /// Orders by larger priority, then lower job, then lower lane.
  bool operator<(const ReadyLane& other) const {
    return std::tie(other.priority, job, lane) < std::tie(priority, other.job, other.lane);
  }
};

/// Ready lanes in order: those open to all devices, and those reserved for one device.
class ReadyLanes {
 public:
  explicit ReadyLanes(std::size_t num_devices) : own_(num_devices) {}

  void add_device() { own_.emplace_back(); }
  std::size_t num_devices() const { return own_.size(); }
  /// `only`: the device that may take it; the invalid id: any.
  void add(const ReadyLane& lane, DeviceId only) { ranking(only).insert(lane); }
  void remove(const ReadyLane& lane, DeviceId only) { ranking(only).erase(lane); }

  bool any_for_all() const { return !open_.empty(); }
  bool any_only_for(DeviceId device) const { return !own_[device.index()].empty(); }

  /// The first lane for the device; `may_take(lane)` filters those open to all.
  template <typename MayTake>
  std::optional<ReadyLane> first(DeviceId device, const MayTake& may_take) const {
    std::optional<ReadyLane> best;
    const auto& own = own_[device.index()];
    if (!own.empty()) best = *own.begin();
    for (const ReadyLane& lane : open_) {
      if (best && *best < lane) break;
      if (may_take(lane)) return lane;
    }
    return best;
  }

 private:
  std::set<ReadyLane>& ranking(DeviceId only) { return only.valid() ? own_[only.index()] : open_; }

  std::set<ReadyLane> open_;
  std::vector<std::set<ReadyLane>> own_;
};

}  // namespace spillway
