#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "spillway/model.h"
#include "spillway/trial_config.h"
#include "spillway/trial_plan.h"
#include "trainer/config/host_groups.h"
#include "trainer/planning/lane_choice.h"

namespace spillway {

/// A trial, cut and lowered for the devices of a session.
struct PlannedTrial {
  std::shared_ptr<const JobPlan> plan;
  int usable_devices = 0;              ///< devices that can run it; may be fewer than its lanes
  std::vector<std::string> too_small;  ///< names and budgets of the other devices
  TrialPlan summary;
  double copy_bytes_per_s = 0;  ///< as measured
};

/// Cuts a trial for the smallest budget among the devices that can run it; smaller devices are left
/// out. On devices of unequal speed it chooses the fastest division into lanes, with as few lanes
/// as possible, unless `train.lane_groups` sets one. `train.reduction_groups` must be set.
/// `avoided`: devices that take no lane. `first_step`: steps that are committed already. `team`:
/// the hosts that train it together.
/// Throws ConfigError (`data.eval_fraction`), or DoesNotFit with the smallest budget that fits.
PlannedTrial plan_trial(const TrialConfig& trial, const ModelSpec& model, const Profile& profile,
                        const std::vector<PlanDevice>& devices, Bytes host_budget,
                        bool double_buffer, const std::vector<DeviceId>& avoided = {},
                        std::int64_t first_step = 0, const HostTeam& team = {});

/// The shape of its steps. Throws ConfigError (`data.eval_fraction`).
JobShape shape_of(const TrialConfig& trial, const std::vector<PlanDevice>& devices,
                  const HostTeam& team = {});

/// Throws ConfigError (`train.data_parallel`) if there are too few devices for that many lanes.
void require_devices(const PlannedTrial& planned, int lanes);

}  // namespace spillway
