#pragma once

#include <iosfwd>

#include "apps/commands/planned_run.h"
#include "apps/terminal/exit_code.h"

namespace spillway {

struct PlanOptions : PlanInput {
  bool json = false;  ///< one JSON document instead of tables
  /// Plan the largest model of the family, with at most so many seconds a step; 0: plan the run as
  /// it is.
  double largest_step_s = 0;
};

/// `spillway plan`: predicts a run. Measures the layers, then runs the scheduler on a virtual
/// clock; writes nothing to disk but the cache of measured costs. Returns kDoesNotFit if a trial
/// fits no device, or the run does not fit this machine. Throws ConfigErrors or ConfigError.
ExitCode plan(const PlanOptions& options, std::ostream& out);

}  // namespace spillway
