#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "scheduler/engine/engine.h"
#include "scheduler/plan/program.h"

namespace spillway {

/// How much of a run is simulated.
struct RunLength {
  double share = 1;               ///< of the steps of each job, at least one
  int times = 1;                  ///< as many of them
  bool evaluates_midway = false;  ///< each job evaluates after half of its steps, too

  std::int64_t steps(std::int64_t of) const;
  /// The job with fewer steps, and without evaluations on the way that are not asked for.
  std::shared_ptr<const JobPlan> shorten(const std::shared_ptr<const JobPlan>& plan) const;
};

/// What a simulated run came to.
struct RunTotals {
  EngineSnapshot counters;
  double wall_s = 0;
  std::vector<std::int64_t> steps;  ///< committed, by job
  double simulated_share = 1;       ///< steps that were simulated, of all
};

/// The totals of a run that is too long to be simulated as a whole. A run takes a fixed part
/// (admissions, first loads, last evaluations) and as much again for every step and for every
/// evaluation on the way. So two runs of unequal length, and a third one with evaluations on the
/// way, say what each of them takes. A run of up to `most_ops` ops is simulated as it is, and so is
/// one whose jobs go on from somewhere, or have ended (null). `first_rung`: jobs may end there, and
/// at multiples of it, before their last step; a length keeps it a whole number. 0: there is none.
RunTotals simulate_shortened(const std::vector<std::shared_ptr<const JobPlan>>& jobs,
                             std::int64_t first_rung, double most_ops,
                             const std::function<RunTotals(const RunLength&)>& simulate);

}  // namespace spillway
