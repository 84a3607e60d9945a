#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/device/link.h"
#include "core/spec/profile.h"
#include "scheduler/plan/need.h"
#include "scheduler/plan/partition.h"
#include "spillway/ids.h"

namespace spillway {

/// A device of a session, with the properties that the plan of one trial needs.
struct PlanDevice {
  DeviceId id;
  std::string name;  ///< "cpu:1"
  Bytes budget = 0;
  MemorySplit split;
  double link_bytes_per_s = 0;       ///< to the host; 0: as fast as memory
  const LinkTable* links = nullptr;  ///< between devices; outlives it; null: none
  std::vector<LayerTimes> layers;    ///< of the model on this device
};

/// The profile's times, multiplied by `slowdown`: an estimate, not a measurement.
std::vector<LayerTimes> times_of(const Profile& profile, double slowdown);

/// True if a lane takes equally long on all of them.
bool equally_fast(const std::vector<PlanDevice>& devices);

/// True if they are equally fast and have equal memory.
bool has_equal_devices(const std::vector<PlanDevice>& devices);

/// True if their connections are alike, too.
bool are_alike(const std::vector<PlanDevice>& devices);

/// The ratio of compute times on two devices, from layers measured on both.
double slowdown_of(const std::vector<LayerTimes>& layers, const std::vector<LayerTimes>& on_other);

/// The devices that take part in a trial, with the number of reduction groups of each.
struct LaneChoice {
  std::vector<int> lane_groups;
  std::vector<DeviceId> lane_devices;  ///< by lane, ascending
  std::vector<std::string> device_names;
  Bytes least_budget = 0;             ///< of the chosen devices
  double step_s = 0;                  ///< estimated
  std::vector<std::string> declined;  ///< one sentence per device that is left out
};

struct LaneLimits {
  int lanes = 1;            ///< at most
  int groups = 1;           ///< per lane, at most
  Bytes needed_budget = 0;  ///< per device, at least
};

/// The lanes within the limits whose slowest lane is fastest (scheduler/elastic/lane_split).
/// Nothing if no lane is possible. `cut` must fit.
std::optional<LaneChoice> choose_lanes(const NeedTable& needs, const Partition& cut,
                                       const JobShape& shape, const LaneLimits& limits,
                                       bool double_buffer, const std::vector<PlanDevice>& devices);

}  // namespace spillway
