#pragma once

#include <atomic>

namespace spillway {

/// From now on the first SIGINT or SIGTERM sets the returned flag, and a second one ends the
/// process.
const std::atomic<bool>& stop_on_signals();

}  // namespace spillway
