#pragma once

#include <memory>
#include <vector>

#include "spillway/model.h"
#include "spillway/trial_config.h"
#include "spillway/trial_plan.h"
#include "trainer/planning/lane_choice.h"

namespace spillway {

/// A trial, cut and lowered for the devices of a session.
struct PlannedTrial {
  std::shared_ptr<const JobPlan> plan;
  int usable_devices = 0;              ///< of those it was cut for; perhaps fewer than it has lanes
  std::vector<std::string> too_small;  ///< of the other devices: their names and memories
  TrialPlan summary;
  double copy_bytes_per_s = 0;  ///< as measured
};

/// Cuts under the smallest budget of the devices that can run the trial at all; devices below that
/// are left out for it. Several lanes on devices that are not equally fast are made for them, as
/// few as are fastest, unless `train.lane_groups` says which. `train.reduction_groups` is set.
/// `avoided`: other devices, of which none may take a lane. `first_step`: steps that were committed
/// before.
/// Throws ConfigError (`data.eval_fraction`), or DoesNotFit with the least that would do.
PlannedTrial plan_trial(const TrialConfig& trial, const ModelSpec& model, const Profile& profile,
                        const std::vector<PlanDevice>& devices, Bytes host_budget,
                        bool double_buffer, const std::vector<DeviceId>& avoided = {},
                        std::int64_t first_step = 0);

/// Throws ConfigError (`train.data_parallel`) where there are not devices for so many lanes of the
/// trial.
void require_devices(const PlannedTrial& planned, int lanes);

/// The number of reduction groups where the configuration leaves it open: the largest divisor of
/// `virtual_nodes` up to 8.
int default_groups(int virtual_nodes);

}  // namespace spillway
