#pragma once

#include <atomic>

namespace spillway {

/// Requests of the user to a run.
struct Requests {
  std::atomic<bool> stop = false;   ///< end all trials after their running ops
  std::atomic<unsigned> state = 0;  ///< how often the state was requested
};

/// Makes SIGUSR1 request the state instead of ending the process.
void take_state_signal();

/// Calls take_state_signal(), and makes SIGINT, SIGTERM and SIGHUP request a stop. Outside of
/// training that ends the process with kInterrupted; within it the first signal sets `stop` and
/// the second ends the process. An ignored SIGHUP stays ignored (nohup). Ignores SIGPIPE and
/// SIGXFSZ, so that writing fails with an error instead.
const Requests& requests_by_signals();

/// A stop outside of training writes an error document to this descriptor.
void stop_with_document(int file);

/// From now on a stop saves checkpoints.
void training_begins();
/// From now on a stop has nothing to save.
void training_ends();

}  // namespace spillway
