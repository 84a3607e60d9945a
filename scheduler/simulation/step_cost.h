#pragma once

#include <memory>
#include <optional>

#include "scheduler/simulation/virtual_shell.h"
#include "spillway/strategy_search.h"

namespace spillway {

/// Steps of a plan for step_cost().
inline constexpr int kPricedSteps = 3;

/// Runs the plan of kPricedSteps steps alone on a virtual clock: the mean cost of all but the first
/// step. Nothing if the devices or the host have no room for it.
std::optional<StepCost> step_cost(std::shared_ptr<const JobPlan> plan, const EngineConfig& engine,
                                  const VirtualCosts& costs);

}  // namespace spillway
