#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "scheduler/partition.h"
#include "trainer/session.h"

namespace spillway {

/// A trial, cut and lowered for the devices of a session.
struct PlannedTrial {
  std::shared_ptr<const JobPlan> plan;
  int usable_devices = 0;  ///< of those it was cut for; perhaps fewer than it has lanes
  TrialPlan summary;
  double copy_bytes_per_s = 0;  ///< as measured
};

/// Cuts under the smallest budget of the devices that can run the trial at all; devices below that
/// are left out for it. `train.reduction_groups` is set.
/// Throws ConfigError (`data...`), or DoesNotFit with the least that would do.
PlannedTrial plan_trial(const TrialConfig& trial, const ModelSpec& model, const Profile& profile,
                        const std::vector<Bytes>& device_budgets, Bytes host_budget,
                        bool double_buffer);

/// Throws ConfigError (`train.lanes`) where the plan has more lanes than there are devices for it.
void require_devices(const PlannedTrial& planned);

/// The number of reduction groups where the configuration leaves it open: the largest divisor of
/// `virtual_nodes` up to 8.
int default_groups(int virtual_nodes);

}  // namespace spillway
