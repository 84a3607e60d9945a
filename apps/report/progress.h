#pragma once

#include <iosfwd>
#include <memory>

#include "runs/log/run_log.h"
#include "spillway/events.h"

namespace spillway {

/// Shows what happens to the trials of a run.
class Progress {
 public:
  virtual ~Progress() = default;
  /// What happened, once `run` has taken it in.
  virtual void take(const RunLog& run, const SessionEvent& event) = 0;
  /// After a batch of events, or none.
  virtual void show(const RunLog& run) = 0;
  /// Takes back what show() redraws: at the end, or before something else is written there.
  virtual void finish() = 0;
};

/// Prints a line for every change of state of a trial, and between them one for each now and then.
/// `out` outlives it, as below.
std::unique_ptr<Progress> make_line_progress(std::ostream& out);

/// Redraws a block of text in place: the trials that run, and how far all are. Above it stays a
/// line for each trial that has ended, and for what devices did. `file` is the terminal behind
/// `out`.
std::unique_ptr<Progress> make_screen_progress(std::ostream& out, int file);

/// "    3.2 s  learning_rate=1e-3  running  step 12/50  loss 2.4130  9.1k tokens/s": the state of
/// a trial, without an end of line.
std::string progress_line(const RunLog& run, std::size_t trial);

/// "    3.2 s  learning_rate=1e-3  resumed after step 12": an event of a trial's checkpoints that
/// is to be seen, likewise; empty: not to be seen.
std::string checkpoint_line(const RunLog& run, const SessionEvent& event);

/// "   12.1 s  device 1  lost  simulated failure after 100 ops": an event of a device, likewise.
std::string device_line(const RunLog& run, const SessionEvent& event);

}  // namespace spillway
