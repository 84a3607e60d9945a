#pragma once

#include <string>
#include <vector>

#include "runs/config/sweep.h"
#include "runs/control/trial_call.h"

namespace spillway {

/// The trial as a clone begins: with `values` ("a.b=c") among its parameters. Throws ConfigError if
/// no checkpoint of it is kept.
Trial clone_of(Trial source, const std::vector<std::string>& values);

/// With the length and schedule of `values`. Throws ConfigError if it would be shorter.
Trial longer(Trial trial, const TrialValues& values);

}  // namespace spillway
