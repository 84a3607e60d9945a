#pragma once

#include <compare>
#include <cstdint>
#include <map>
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

/// A ready lane among those whose next units are of one group (UnitState::group).
struct GroupedLane {
  std::uint64_t last_served = 0;  ///< of its job
  JobId job;
  int lane = 0;
  auto operator<=>(const GroupedLane&) const = default;
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
  void add(int group, const GroupedLane& lane) { groups_[group].insert(lane); }
  void remove(int group, const GroupedLane& lane) {
    const auto found = groups_.find(group);
    found->second.erase(lane);
    if (found->second.empty()) groups_.erase(found);
  }

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

  /// The lane of the group that `may_take(lane)` and whose job was served longest ago, before the
  /// claim `begin`.
  template <typename MayTake>
  std::optional<GroupedLane> first(int group, std::uint64_t begin, const MayTake& may_take) const {
    const auto found = groups_.find(group);
    if (found == groups_.end()) return std::nullopt;
    for (const GroupedLane& lane : found->second) {
      if (lane.last_served >= begin) break;
      if (may_take(lane)) return lane;
    }
    return std::nullopt;
  }

 private:
  std::set<ReadyLane>& ranking(DeviceId only) { return only.valid() ? own_[only.index()] : open_; }

  std::set<ReadyLane> open_;
  std::vector<std::set<ReadyLane>> own_;
  std::map<int, std::set<GroupedLane>> groups_;
};

}  // namespace spillway
