#pragma once

#include <iosfwd>
#include <string>

#include "apps/plan/largest_model.h"
#include "apps/plan/planned_run.h"
#include "apps/plan/planned_times.h"
#include "apps/plan/remedies.h"
#include "apps/plan/strategy_plan.h"

/// A plan as text and as JSON.
namespace spillway {

/// What a plan predicts.
struct PlanReport {
  const PlannedRun& run;
  const RunResult& result;  ///< of the simulation
  const Advice& advice;     ///< if it does not fit
  const PlannedTimes& times;
  const LargestModel* largest = nullptr;  ///< null: the model of the file
  const FoundStrategy* found = nullptr;   ///< null: there was no search
  bool estimated = false;
};

void print(std::ostream& out, const PlanReport& report);
std::string to_json(const PlanReport& report);

}  // namespace spillway
