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

/// A session's run as the command line sees it: written down, shown, reported.
namespace spillway {

/// Streams and switches that train and resume share.
struct Console {
  std::ostream& out;
  std::ostream& log;
  bool json;
  int progress_file;
  const Requests& requests;
};

/// Where in the log of a run the events of a session belong: after those of sessions before it.
struct Place {
  std::vector<std::size_t> trials;  ///< the log's numbers, by the session's
  std::uint64_t sequence = 0;       ///< of the last event before
  double time_s = 0;

  SessionEvent operator()(SessionEvent event) const;
};

/// The run on a virtual clock, unless that would take long itself.
std::optional<RunResult> simulate(const Session& session, const std::vector<Trial>& trials);

/// Trains all that was submitted, and leaves everything in the folder. What `events` says until now
/// is in its file. Throws what keeps it from
/// writing down what happens; the session has ended by then.
ExitCode follow(Session& session, const std::vector<Trial>& trials, const Place& place,
                const std::optional<RunResult>& planned, const OutputFolder& folder,
                EventLog& events, const Console& console);

/// The tables of all trials, which follow from the log alone.
void write_outputs(const OutputFolder& folder, const RunLog& run);
/// The report, as text or as a document.
void print(const RunLog& run, const OutputFolder& folder, const Console& console);
/// Of a run that has ended.
ExitCode exit_code(const RunLog& run, bool interrupted);

}  // namespace spillway
