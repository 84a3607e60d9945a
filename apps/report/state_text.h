#pragma once

#include <string>

#include "spillway/session_state.h"

namespace spillway {

/// Tables of devices, of trials that have not ended, and of what is under way and for how long.
std::string state_text(const SessionState& state);

}  // namespace spillway
