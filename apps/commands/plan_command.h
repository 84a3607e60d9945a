#pragma once

#include <iosfwd>

#include "apps/plan/largest_model.h"
#include "apps/plan/planned_run.h"
#include "apps/plan/strategy_plan.h"
#include "apps/terminal/exit_code.h"

namespace spillway {

struct PlanOptions : PlanInput {
  bool json = false;     ///< one JSON document instead of tables
  bool largest = false;  ///< the largest model of the family that fits, not that of the file
  double most_step_s = kAnySpeed;  ///< of the largest model
  SearchOptions search;
};

/// `spillway plan`: predicts a run. Measures the layers, then runs the scheduler on a virtual
/// clock; writes nothing to disk but the cache of measured costs, and the strategy that a search
/// finds. Returns kDoesNotFit if a trial fits no device, or the run does not fit this machine.
/// Throws ConfigErrors or ConfigError.
ExitCode plan(const PlanOptions& options, std::ostream& out);

}  // namespace spillway
