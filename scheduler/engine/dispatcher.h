#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "scheduler/engine/device_set.h"
#include "scheduler/engine/engine_state.h"
#include "scheduler/engine/ready_tracks.h"

namespace spillway {

/// Chooses which ready unit goes to which device, and which devices to visit after an event. Ready
/// tracks are kept in the policy's order and devices in sets, so the cost of an event does not grow
/// with the number of jobs and devices. Copyable.
class Dispatcher {
 public:
  Dispatcher(const EngineTables& tables, const ResidencyManager& memory,
             std::shared_ptr<const Policy> policy, bool double_buffer);

  void add_device();
  /// The device, or what it waits for, has changed: it will be visited.
  void touch(DeviceId id);
  /// Updates the sets after the tables of a device have changed.
  void note_state(const EngineTables& tables, const ResidencyManager& memory, DeviceId id);
  /// A unit may have become ready.
  void note_ready() { ++readiness_; }
  /// The policy's priority of a unit.
  double priority(const EngineTables& tables, JobId id, int track, int unit) const;
  /// Ranks a track's next unit again. Called whenever its possible devices or the policy's input
  /// may have changed.
  void rank(EngineTables& tables, JobId id, int track);
  /// Ranks all tracks of a job.
  void rank(EngineTables& tables, JobId id);

  /// Claims the unit that the device runs next; nothing if no ready unit may run there. The policy
  /// chooses among all jobs, except that jobs that share blocks go through them together: the
  /// policy's choice stands for all of them, the one furthest behind in its program goes first, and
  /// then each other job once whose next unit is of the same group (UnitState).
  std::optional<UnitRef> claim(EngineTables& tables, const ResidencyManager& memory, DeviceId id);
  /// True if no unit of the device's group has reserved memory yet, and a job that shares its
  /// blocks has become ready that is further behind. The device's unit is then given back.
  bool is_overtaken(EngineTables& tables, const ResidencyManager& memory, DeviceId id) const;
  /// Takes a unit that another device has claimed but not begun, for a device without work.
  std::optional<UnitRef> steal(EngineTables& tables, const ResidencyManager& memory,
                               DeviceId thief);

  /// Calls `drive`, then with double buffering `prefetch`, for the touched devices and for those
  /// that want a unit while there is one. Idle devices come first.
  template <typename Drive, typename Prefetch>
  void visit(const EngineTables& tables, const ResidencyManager& memory, const Drive& drive,
             const Prefetch& prefetch);

 private:
  template <typename HasWork, typename Handle>
  void visit_touched(const EngineTables& tables, const ResidencyManager& memory,
                     const DeviceSet& idle, DeviceSet& touched, const DeviceSet& wanting,
                     const HasWork& has_work, const Handle& handle);
  ReadyTrack prefer_resident(const EngineTables& tables, const ResidencyManager& memory,
                             DeviceId id, const ReadyTrack& first) const;
  ReadyTrack furthest_behind(const EngineTables& tables, const ResidencyManager& memory,
                             DeviceId id, const ReadyTrack& first) const;
  std::optional<ReadyTrack> of_same_group(const EngineTables& tables, DeviceId id) const;
  void claim(EngineTables& tables, DeviceId id, UnitRef unit);

  std::shared_ptr<const Policy> policy_;
  bool double_buffer_;
  std::uint64_t claims_ = 0;
  std::uint64_t readiness_ = 1;  ///< grows whenever a unit may have become ready
  ReadyTracks ready_;
  DeviceSet to_drive_, to_prefetch_;      ///< touched since their last visit
  DeviceSet idle_;                        ///< nothing runs there
  DeviceSet wants_current_, wants_next_;  ///< could claim a unit: to run, to prefetch
  DeviceSet stealable_;                   ///< have a unit that others may steal
};

template <typename HasWork, typename Handle>
void Dispatcher::visit_touched(const EngineTables& tables, const ResidencyManager& memory,
                               const DeviceSet& idle, DeviceSet& touched, const DeviceSet& wanting,
                               const HasWork& has_work, const Handle& handle) {
  for (const bool idle_ones : {true, false}) {
    for (std::size_t from = 0;;) {
      DeviceId id = touched.next(from);
      if (has_work()) id = std::min(id, wanting.next(from));
      if (!id.valid()) break;
      from = id.index() + 1;
      if (idle.contains(id) != idle_ones) continue;
      handle(id);
      note_state(tables, memory, id);
      touched.set(id, wanting.contains(id) && ready_.any_only_for(id));
    }
  }
}

template <typename Drive, typename Prefetch>
void Dispatcher::visit(const EngineTables& tables, const ResidencyManager& memory,
                       const Drive& drive, const Prefetch& prefetch) {
  const DeviceSet idle = idle_;  // before anything starts
  const auto to_claim = [&] { return ready_.any_for_all(); };
  const auto to_claim_or_steal = [&] { return to_claim() || !stealable_.empty(); };
  visit_touched(tables, memory, idle, to_drive_, wants_current_, to_claim_or_steal,
                [&](DeviceId id) {
                  if (tables.of(id).state != DeviceState::gone) to_prefetch_.set(id, true);
                  drive(id);
                });
  if (!double_buffer_) return;
  visit_touched(tables, memory, idle, to_prefetch_, wants_next_, to_claim, prefetch);
}

}  // namespace spillway
