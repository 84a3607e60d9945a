#pragma once

#include <atomic>

namespace spillway {

/// What a user asks of a run.
struct Requests {
  std::atomic<bool> stop = false;   ///< all trials are to end after their running ops
  std::atomic<unsigned> state = 0;  ///< so often, to be shown the state
};

/// From now on a SIGUSR1 asks for the state, where there is a run, and never ends the process.
void take_state_signal();

/// As take_state_signal(); and the first SIGINT or SIGTERM asks to stop, a second one ends the
/// process.
const Requests& requests_by_signals();

}  // namespace spillway
