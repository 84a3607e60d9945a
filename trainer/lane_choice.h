#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/profile.h"
#include "scheduler/need.h"
#include "scheduler/partition.h"

namespace spillway {

/// A device of a session as the plan of one trial sees it.
struct PlanDevice {
  std::string name;  ///< "cpu:1"
  Bytes budget = 0;
  double link_bytes_per_s = 0;     ///< 0: as fast as memory is
  std::vector<LayerTimes> layers;  ///< as measured there; empty: as the profile says
};

/// Whether a lane takes equally long on each.
bool equally_fast(const std::vector<PlanDevice>& devices);

/// So many times longer than the profile says compute takes on the device.
double slowdown_of(const PlanDevice& device, const Profile& profile);

/// Which devices take part in a trial, and with how many reduction groups each.
struct LaneChoice {
  std::vector<int> lane_groups;
  std::vector<DeviceId> lane_devices;  ///< by lane, ascending
  double step_s = 0;                   ///< as the split expects it
  std::vector<std::string> declined;   ///< a sentence for each device that takes no part
};

/// At most `max_lanes` lanes on the devices with at least `least_budget`, so that the slowest is
/// fastest (scheduler/lane_split). Nothing where no device has that budget.
std::optional<LaneChoice> choose_lanes(const NeedTable& needs, const Partition& cut,
                                       const JobShape& shape, int max_lanes, bool double_buffer,
                                       const std::vector<PlanDevice>& devices, Bytes least_budget);

}  // namespace spillway
