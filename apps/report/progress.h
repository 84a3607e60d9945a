#pragma once

#include <iosfwd>
#include <memory>

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
  /// Erases what show() draws: at the end, or before other output.
  virtual void finish() = 0;
};

/// Prints a line when the state of a trial changes, and every ten seconds while it runs. `out` must
/// outlive the result, here and below.
std::unique_ptr<Progress> make_line_progress(std::ostream& out);

/// Redraws a block of text in place: the running trials and the overall progress. Above it prints a
/// line for each trial that has ended and each device event. `file` is the terminal's descriptor.
std::unique_ptr<Progress> make_screen_progress(std::ostream& out, int file);

/// "    3.2 s  learning_rate=1e-3  running  step 12/50  loss 2.4130  9.1k tokens/s": the state of
/// a trial, without a newline.
std::string progress_line(const RunLog& run, std::size_t trial);

/// "    3.2 s  learning_rate=1e-3  resumed after step 12"; empty if the checkpoint event is not
/// shown.
std::string checkpoint_line(const RunLog& run, const SessionEvent& event);

/// "   12.1 s  device 1  lost  simulated failure after 100 ops".
std::string device_line(const RunLog& run, const SessionEvent& event);

}  // namespace spillway
