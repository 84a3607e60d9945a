#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/session_config.h"
#include "trainer/planning/plan_trial.h"
#include "trainer/session/device_list.h"
#include "trainer/session/session_trial.h"

namespace spillway {

/// Costs are measured once for all devices of a kind.
std::string kind_of(const Device& device);

/// Costs on the kind of device that the trial's profile is of: measured beside the others, if there
/// is one.
std::vector<LayerTimes> profiled_times(const SessionTrial& trial);

/// Plans trials for the devices that are present. Changes nothing; under the session's mutex, like
/// the devices and the trials. The configuration and the devices outlive it.
class Planner {
 public:
  using Devices = std::vector<DeviceId>;

  Planner(const SessionConfig& config, const DeviceList& devices)
      : config_(config), devices_(devices) {}

  /// Throws DoesNotFit. `avoided`: devices that take no lane.
  PlannedTrial plan(const SessionTrial& trial, int lanes, const Devices& avoided = {}) const;
  /// Likewise, where the user asks for these lanes. Throws ConfigError (`train.data_parallel`)
  /// where the trial cannot have them.
  PlannedTrial plan_resize(const SessionTrial& trial, int lanes) const;
  /// For as many of these lanes as there can be. Null: for none.
  std::shared_ptr<const JobPlan> best_plan(const SessionTrial& trial, int lanes,
                                           const Devices& avoided) const;
  /// What a trial goes on with once the devices have changed.
  struct Fit {
    std::shared_ptr<const JobPlan> plan;  ///< the trial's own where that is as good
    Devices avoided;
  };
  /// With as many lanes as the trial has asked for, or as there can be. Nothing: with none.
  std::optional<Fit> fit(const SessionTrial& trial) const;

  /// Devices that can run the trial, at least 1 and at most TrialLanes::max.
  int lanes_possible(const SessionTrial& trial) const;
  /// The most of any plan that is possible now, with up to TrialLanes::max.
  Bytes home_for_all_lanes(const SessionTrial& trial) const;
  PlanDevice device(const SessionTrial& trial, std::size_t number) const;

 private:
  std::vector<PlanDevice> present_devices(const SessionTrial& trial, const Devices& avoided) const;
  std::shared_ptr<const JobPlan> try_plan(const SessionTrial& trial, int lanes,
                                          const Devices& avoided) const;
  bool stands(const SessionTrial& trial, int lanes, const Devices& avoided) const;

  const SessionConfig& config_;
  const DeviceList& devices_;
};

}  // namespace spillway
