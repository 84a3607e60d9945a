#pragma once

#include <set>
#include <utility>
#include <vector>

#include "scheduler/engine/engine_state.h"

namespace spillway {

/// Chooses the devices of a program's tracks, all at once, when the program begins. A track of a
/// strategy keeps weights and sums on its device between its units, so a program waits until every
/// track has room beside what others keep there. Otherwise jobs would displace each other's blocks
/// at every unit. Programs are placed in the policy's order; none passes one that the policy
/// prefers. Copyable.
class Placer {
 public:
  explicit Placer(std::size_t num_devices) : placed_(num_devices) {}

  void add_device() { placed_.emplace_back(); }
  /// Whether the program that the job has begun has to be placed: it has several tracks, other than
  /// lanes, which keep nothing between units, and there is a device for each.
  static bool is_needed(const JobTable& job);
  /// The program waits from now on. `priority`: the policy's.
  void add(JobId job, double priority);
  /// Nothing of the job waits or has a place any more.
  void remove(JobId job);
  /// The track has claimed its last unit: what comes now on its device comes behind it.
  void end_track(JobId job, int track, DeviceId device);
  /// Room may have been gained.
  void note_change() { changed_ = true; }
  /// Whether place() may place a program.
  bool has_work() const { return changed_ && !waiting_.empty(); }
  /// Places those that wait, until one has no room. Returns those placed: JobTable::places is set.
  std::vector<JobId> place(EngineTables& tables, const ResidencyManager& memory);

 private:
  /// A track on a device, with its need there.
  struct Placed {
    JobId job;
    int track = 0;
    TrackNeed need;
  };
  bool has_room(DeviceId id, const TrackNeed& need, const ResidencyManager& memory) const;
  double busy_s(DeviceId id) const;
  std::vector<DeviceId> places_for(const EngineTables& tables, const JobTable& job,
                                   const ResidencyManager& memory) const;

  std::set<std::pair<double, JobId>> waiting_;  ///< negated priority, job
  std::vector<std::vector<Placed>> placed_;     ///< by device
  bool changed_ = false;
};

}  // namespace spillway
