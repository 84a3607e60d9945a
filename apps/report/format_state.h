#pragma once

#include <string>

#include "runs/text/table.h"
#include "spillway/session_state.h"

namespace spillway {

/// Formats tables of devices, of trials that have not ended, and of operations in flight, each at
/// most `width` columns wide.
std::string format_state(const SessionState& state, std::size_t width = kAnyWidth);

}  // namespace spillway
