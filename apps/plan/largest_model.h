#pragma once

#include <limits>
#include <string>
#include <vector>

#include "apps/plan/planned_run.h"

namespace spillway {

/// As `most_step_s`: no limit.
inline constexpr double kAnySpeed = std::numeric_limits<double>::infinity();

/// A model of the run's family that fits.
struct LargestModel {
  std::vector<std::string> overrides;  ///< of `model`
  int plans = 0;                       ///< how many decided that
};

/// Searches the largest model with which all trials fit the budgets and the machine, and a step of
/// a trial takes at most `most_step_s` seconds. A gpt has as many heads as blocks, 64 wide; an mlp,
/// a resnet and an rnn keep their depth, and a preset of a cnn has another width_mult. First by
/// estimates, then by measured plans, unless `input.estimate`. If none fits, it returns the
/// smallest. Throws what plan_run() throws.
LargestModel find_largest_model(const PlanInput& input, double most_step_s);

}  // namespace spillway
