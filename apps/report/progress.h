#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "runs/log/run_log.h"
#include "spillway/events.h"

namespace spillway {

/// Shows the progress of a run's trials.
class Progress {
 public:
  virtual ~Progress() = default;
  /// Takes an event that `run` has already applied.
  virtual void take(const RunLog& run, const SessionEvent& event) = 0;
  /// Called after each batch of events, which may be empty.
  virtual void show(const RunLog& run) = 0;
  /// From now on the run ends early: shows which checkpoints are being written.
  virtual void stop(const RunLog& run) = 0;
  /// Erases what show() draws: at the end, or before other output.
  virtual void finish() = 0;
};

/// Prints a line when the state of a trial changes, and every ten seconds while it runs. `out` must
/// outlive the result, here and below.
std::unique_ptr<Progress> make_line_progress(std::ostream& out);

/// Redraws a block of text in place: the running trials and the overall progress. Above it prints a
/// line for each trial that has ended and each device event. `file` is the terminal's descriptor.
std::unique_ptr<Progress> make_screen_progress(std::ostream& out, int file);

}  // namespace spillway
