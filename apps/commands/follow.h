#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "apps/terminal/exit_code.h"
#include "apps/terminal/signals.h"
#include "runs/config/sweep.h"
#include "runs/folder/output_folder.h"
#include "runs/log/event_log.h"
#include "spillway/session.h"

/// Runs a session on the command line: logs, shows and reports it.
namespace spillway {

/// Streams and switches that train and resume share.
struct Console {
  std::ostream& out;
  std::ostream& log;
  bool json;
  int progress_file;
  const Requests& requests;
};

/// The place of a session's events in the log of a run: after the events of earlier sessions.
struct Place {
  std::vector<std::size_t> trials;  ///< numbers in the log, by number in the session
  std::uint64_t sequence = 0;       ///< of the last earlier event
  double time_s = 0;

  SessionEvent operator()(SessionEvent event) const;
};

/// Runs the session on a virtual clock; nullopt if that would take too long.
std::optional<RunResult> simulate(const Session& session, const std::vector<Trial>& trials);

/// Trains all submitted trials, and those that other processes add, and writes all outputs to the
/// folder. `events` must be flushed.
/// `request`: of another kind than those, carried out first. If the log cannot be written, it ends
/// the session and throws.
ExitCode follow(Session& session, std::vector<Trial> trials, Place place,
                const std::optional<RunResult>& planned, const OutputFolder& folder,
                EventLog& events, const Console& console,
                const std::optional<Json>& request = std::nullopt);

/// Writes results.csv and plan.json. Returns false, and reports it, if one cannot be written.
bool write_outputs(const OutputFolder& folder, const RunLog& run, std::ostream& log);
/// Prints the report as text or JSON.
void print(const RunLog& run, const OutputFolder& folder, const Console& console);
/// Lists the trials that are paused, and how to continue them. Returns whether there are any.
bool report_paused(const RunLog& run, const OutputFolder& folder, std::ostream& log);
/// The exit code of a run that has ended.
ExitCode exit_code(const RunLog& run, bool interrupted);

}  // namespace spillway
