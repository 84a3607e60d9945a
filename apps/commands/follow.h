#pragma once

#include <iosfwd>
#include <optional>

#include "apps/terminal/exit_code.h"
#include "apps/terminal/signals.h"
#include "runs/control/open_run.h"
#include "runs/folder/output_folder.h"
#include "runs/log/run_json.h"

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

/// Trains all submitted trials, and those that other processes add, and writes all outputs to the
/// folder. `request`: of another kind than those, carried out first. If the log cannot be written,
/// it ends the session and throws. Returns nothing if the run goes on with Session::next_hosts().
std::optional<ExitCode> follow(OpenRun& run, const OutputFolder& folder, const Console& console,
                               const std::optional<Json>& request = std::nullopt);

/// Prints the report as text or JSON.
void print(const RunLog& run, const OutputFolder& folder, const Console& console);
/// Lists the trials that are paused, and how to continue them. Returns whether there are any.
bool report_paused(const RunLog& run, const OutputFolder& folder, std::ostream& log);
/// The exit code of a run that has ended.
ExitCode exit_code(const RunLog& run, bool interrupted);

}  // namespace spillway
