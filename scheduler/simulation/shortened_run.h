#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "scheduler/engine/engine.h"
#include "scheduler/plan/program.h"

namespace spillway {

/// The part of a run that is simulated.
struct RunLength {
  double share = 1;               ///< of the steps of each job, at least one
  int times = 1;                  ///< the same number of them
  bool evaluates_midway = false;  ///< each job evaluates after half of its steps, too

  std::int64_t steps(std::int64_t of) const;
  /// The job with fewer steps, and without intermediate evaluations unless `evaluates_midway`.
  std::shared_ptr<const JobPlan> shorten(const std::shared_ptr<const JobPlan>& plan) const;
};

/// The totals of a simulated run.
struct RunTotals {
  EngineSnapshot counters;
  double wall_s = 0;
  std::vector<std::int64_t> steps;  ///< committed, by job
  double simulated_share = 1;       ///< steps that were simulated, of all
};

/// Estimates the totals of a run that is too long to simulate as a whole. A run has a fixed cost
/// (admissions, first loads, last evaluations), a cost per step, and a cost per intermediate
/// evaluation. Two short runs of different length, and a third one with intermediate evaluations,
/// determine them. Runs of up to `most_ops` ops are simulated exactly, and so are runs with resumed
/// or ended (null) jobs. `first_rung`: jobs may end at its multiples before their last step, so
/// shortened runs keep it a whole number; 0: there is none.
RunTotals simulate_shortened(const std::vector<std::shared_ptr<const JobPlan>>& jobs,
                             std::int64_t first_rung, double most_ops,
                             const std::function<RunTotals(const RunLength&)>& simulate);

}  // namespace spillway
