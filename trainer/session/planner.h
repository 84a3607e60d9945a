#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/session_config.h"
#include "trainer/planning/plan_trial.h"
#include "trainer/session/device_list.h"
#include "trainer/trial/session_trial.h"

namespace spillway {

/// The kind of a device: costs are measured once for all devices of a kind.
std::string kind_of(const Device& device);

/// Costs on the kind of device on which the trial was profiled; measured together with the other
/// kinds, if there are several.
std::vector<LayerTimes> profiled_times(const SessionTrial& trial);

/// Plans trials for the devices that are present. Changes nothing. The configuration and the
/// devices outlive it.
class Planner {
 public:
  using Devices = std::vector<DeviceId>;

  Planner(const SessionConfig& config, const DeviceList& devices)
      : config_(config), devices_(devices), links_(config.links) {}

  /// Throws DoesNotFit. `avoided`: devices that take no lane.
  PlannedTrial plan(const SessionTrial& trial, int lanes, const Devices& avoided = {}) const {
    return plan_for(trial.team, trial, lanes, avoided);
  }
  /// Like plan(), for lanes that the user requests. Throws ConfigError (`train.data_parallel`) if
  /// the trial cannot have them.
  PlannedTrial plan_resize(const SessionTrial& trial, int lanes) const;
  /// The plan that the trial would have with this configuration, a device for each track. Null if
  /// there is none.
  std::shared_ptr<const JobPlan> plan_of(const SessionTrial& trial,
                                         const TrialConfig& config) const;
  /// The shape of its steps.
  JobShape shape_of(const SessionTrial& trial, const TrialConfig& config) const;
  /// A plan for as many of these lanes as possible. Null if not even one is possible.
  std::shared_ptr<const JobPlan> best_plan(const SessionTrial& trial, int lanes,
                                           const Devices& avoided) const;
  /// The plan of a trial after the devices have changed.
  struct Fit {
    std::shared_ptr<const JobPlan> plan;  ///< the trial's present one if it is as good
    Devices avoided;
  };
  /// With the lanes that the trial has requested, or as many as possible. Nothing: no lane fits.
  std::optional<Fit> fit(const SessionTrial& trial) const;

  /// Numbers of devices up to TrialLanes::max that may make the trial faster than fewer: those with
  /// a strategy, and useful_lanes(). Ascending, from 1.
  std::vector<int> sizes(const SessionTrial& trial) const;
  /// Devices that can run the trial, at least 1 and at most TrialLanes::max.
  int lanes_possible(const SessionTrial& trial) const;
  /// Host memory for every plan that is possible now, with up to TrialLanes::max, and after other
  /// hosts are lost.
  Bytes home_for_all_plans(const SessionTrial& trial) const;
  PlanDevice device(const SessionTrial& trial, std::size_t number) const;

 private:
  PlannedTrial plan_for(const HostTeam& team, const SessionTrial& trial, int lanes,
                        const Devices& avoided) const;
  PlannedTrial plan_within_home(const SessionTrial& trial, int lanes, const Devices& avoided) const;
  std::vector<HostTeam> possible_teams(const SessionTrial& trial) const;
  std::vector<PlanDevice> present_devices(const SessionTrial& trial, const Devices& avoided) const;
  std::shared_ptr<const JobPlan> try_plan(const SessionTrial& trial, int lanes,
                                          const Devices& avoided) const;
  bool is_current(const SessionTrial& trial, int lanes, const Devices& avoided) const;

  const SessionConfig& config_;
  const DeviceList& devices_;
  const LinkTable links_;
};

}  // namespace spillway
