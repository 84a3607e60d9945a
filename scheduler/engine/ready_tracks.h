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

/// A track whose next unit may be claimed, with the policy's priority of that unit.
struct ReadyTrack {
  double priority = 0;
  JobId job;
  int track = 0;
  /// Orders by larger priority, then lower job, then lower track.
  bool operator<(const ReadyTrack& other) const {
    return std::tie(other.priority, job, track) < std::tie(priority, other.job, other.track);
  }
};

/// A ready track among those whose next units are of one group (UnitState::group).
struct GroupedTrack {
  std::uint64_t last_served = 0;  ///< of its job
  JobId job;
  int track = 0;
  auto operator<=>(const GroupedTrack&) const = default;
};

/// Ready tracks in order: those open to all devices, and those reserved for one device.
class ReadyTracks {
 public:
  explicit ReadyTracks(std::size_t num_devices) : own_(num_devices) {}

  void add_device() { own_.emplace_back(); }
  std::size_t num_devices() const { return own_.size(); }
  /// `only`: the device that may take it; the invalid id: any.
  void add(const ReadyTrack& track, DeviceId only) { ranking(only).insert(track); }
  void remove(const ReadyTrack& track, DeviceId only) { ranking(only).erase(track); }
  void add(int group, const GroupedTrack& track) { groups_[group].insert(track); }
  void remove(int group, const GroupedTrack& track) {
    const auto found = groups_.find(group);
    found->second.erase(track);
    if (found->second.empty()) groups_.erase(found);
  }

  bool any_for_all() const { return !open_.empty(); }
  bool any_only_for(DeviceId device) const { return !own_[device.index()].empty(); }

  /// The first track for the device; `may_take(track)` filters those open to all.
  template <typename MayTake>
  std::optional<ReadyTrack> first(DeviceId device, const MayTake& may_take) const {
    std::optional<ReadyTrack> best;
    const auto& own = own_[device.index()];
    if (!own.empty()) best = *own.begin();
    for (const ReadyTrack& track : open_) {
      if (best && *best < track) break;
      if (may_take(track)) return track;
    }
    return best;
  }

  /// The track of the group that `may_take(track)` and whose job was served longest ago, before the
  /// claim `begin`.
  template <typename MayTake>
  std::optional<GroupedTrack> first(int group, std::uint64_t begin, const MayTake& may_take) const {
    const auto found = groups_.find(group);
    if (found == groups_.end()) return std::nullopt;
    for (const GroupedTrack& track : found->second) {
      if (track.last_served >= begin) break;
      if (may_take(track)) return track;
    }
    return std::nullopt;
  }

 private:
  std::set<ReadyTrack>& ranking(DeviceId only) { return only.valid() ? own_[only.index()] : open_; }

  std::set<ReadyTrack> open_;
  std::vector<std::set<ReadyTrack>> own_;
  std::map<int, std::set<GroupedTrack>> groups_;
};

}  // namespace spillway
