#pragma once

#include <optional>

#include "scheduler/simulation/virtual_shell.h"

namespace spillway {

/// The seconds of a training step that follows another, by one pass over its program instead of a
/// run of the engine: each queue of a device takes its work in the order of the program. That is
/// how the engine runs it where everything fits. Nothing if a device has no room for all that would
/// be there at once. Much faster than step_cost(), and close to it. `plan`: as of lower_step(),
/// alone on the devices. Source: the full simulation of Jia et al., "Beyond Data and Model
/// Parallelism for Deep Neural Networks", 2019, section 5.
std::optional<double> static_step_s(const JobPlan& plan, const EngineConfig& engine,
                                    const VirtualCosts& costs);

}  // namespace spillway
