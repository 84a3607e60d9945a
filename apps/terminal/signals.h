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

/// As take_state_signal(); and SIGINT, SIGTERM and SIGHUP ask to stop: before training_begins()
/// that ends the process with kInterrupted, then the first one sets `stop` and a second one ends
/// the process. A SIGHUP that is ignored already stays so (nohup). SIGPIPE and SIGXFSZ are ignored,
/// so that writing fails with an error in place of ending the process.
const Requests& requests_by_signals();

/// From now on there is work to save when a stop is asked for.
void training_begins();

}  // namespace spillway
