#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/spec/profile.h"
#include "scheduler/plan/need.h"
#include "scheduler/plan/partition.h"
#include "spillway/ids.h"

namespace spillway {

/// A device of a session as the plan of one trial sees it.
struct PlanDevice {
  DeviceId id;
  std::string name;  ///< "cpu:1"
  Bytes budget = 0;
  MemorySplit split;
  double link_bytes_per_s = 0;     ///< 0: as fast as memory is
  std::vector<LayerTimes> layers;  ///< of the model, there
};

/// What a device of the profile's kind takes, `slowdown` times longer: a guess, nothing is
/// measured.
std::vector<LayerTimes> times_of(const Profile& profile, double slowdown);

/// Whether a lane takes equally long on each.
bool equally_fast(const std::vector<PlanDevice>& devices);

/// So many times longer compute takes on one device than on another, by layers measured on both.
double slowdown_of(const std::vector<LayerTimes>& layers, const std::vector<LayerTimes>& on_other);

/// Which devices take part in a trial, and with how many reduction groups each.
struct LaneChoice {
  std::vector<int> lane_groups;
  std::vector<DeviceId> lane_devices;  ///< by lane, ascending
  std::vector<std::string> device_names;
  Bytes least_budget = 0;             ///< of these devices
  double step_s = 0;                  ///< about
  std::vector<std::string> declined;  ///< a sentence for each device that takes no part
};

struct LaneLimits {
  int lanes = 1;            ///< at most so many
  int groups = 1;           ///< in any of them, at most
  Bytes needed_budget = 0;  ///< of a device that takes part, at least
};

/// Lanes within the limits, so that the slowest is fastest (scheduler/elastic/lane_split). Nothing
/// where there are none. `cut` fits.
std::optional<LaneChoice> choose_lanes(const NeedTable& needs, const Partition& cut,
                                       const JobShape& shape, const LaneLimits& limits,
                                       bool double_buffer, const std::vector<PlanDevice>& devices);

}  // namespace spillway
