#pragma once

#include <optional>
#include <vector>

#include "apps/plan/planned_run.h"

namespace spillway {

/// Where the time of a simulated run goes.
struct PlannedTimes {
  double step_s = 0;  ///< of the run, for each step of a trial, all that belongs to it included
  /// Work for one step, on devices and on cores of the host, which work at the same time.
  double training_s = 0, update_s = 0;
  std::optional<double> evaluation_s;  ///< work on devices for one evaluation
  double samples_per_s = 0;            ///< of training, over all trials
  std::optional<double> tokens_per_s;  ///< of a gpt
  double epoch_s = 0;                  ///< until all trials have read their data once
};

/// `result`: the simulation of `run`, with its trace.
PlannedTimes times_of(const PlannedRun& run, const RunResult& result);

}  // namespace spillway
