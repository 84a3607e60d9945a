#pragma once

#include <string>
#include <vector>

#include "apps/plan/planned_run.h"

namespace spillway {

/// Overrides with which a run fits that did not.
struct Remedy {
  std::vector<std::string> overrides;
  bool changes_bits = false;
  TierBytes needs;    ///< of the trial that needed most
  double step_s = 0;  ///< planned seconds of a step of a trial
};

/// What was tried for a run that does not fit.
struct Advice {
  std::vector<Remedy> remedies;      ///< each was planned and fits; the fastest first
  std::vector<std::string> useless;  ///< overrides with which it does not fit either
  bool is_complete = true;           ///< false: not all were tried, since that takes long
};

/// Plans the run again with changes, alone and in pairs: more memory of devices and host, fewer
/// reduction groups, bf16, smaller virtual nodes, files instead of memory. At most a dozen plans.
/// Some measure layers, but none of what by estimates cannot fit or takes long, and none begins
/// after a minute. `run` does not fit.
Advice find_remedies(const PlanInput& input, const PlannedRun& run);

}  // namespace spillway
