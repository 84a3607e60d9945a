#pragma once

#include <string>

#include "spillway/session_state.h"

namespace spillway {

/// Formats tables of devices, of trials that have not ended, and of operations in flight.
std::string format_state(const SessionState& state);

}  // namespace spillway
