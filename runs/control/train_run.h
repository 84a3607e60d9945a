#pragma once

#include <functional>

#include "runs/control/recorder.h"
#include "spillway/session.h"

namespace spillway {

/// What the caller of train_run() does meanwhile, about ten times a second.
struct RunWatch {
  std::function<bool()> wants_stop;  ///< true: all trials end after their running ops
  std::function<void()> show;        ///< shows the progress
};

/// Trains the trials of a run, and those that other processes add, until only paused ones are left,
/// which it then stops. If the log cannot be written, or `watch` throws, it ends the run and
/// throws.
void train_run(Session& session, Recorder& recorder, const RunWatch& watch);

}  // namespace spillway
