#pragma once

#include <string>
#include <vector>

#include "apps/terminal/terminal.h"
#include "runs/log/run_log.h"

namespace spillway {

/// How much of a run is done, by the compute that its steps are planned to take: from 0 to 1. What
/// a trial that failed or was stopped has left does not count.
double share_done(const RunLog& run);

/// The lines that show a run in a terminal: one a trial that runs, as many as there is room for,
/// then "and N more", then how far all are and how long the rest may take. None is longer than the
/// terminal is wide, and one row stays free for the cursor.
std::vector<std::string> screen_lines(const RunLog& run, TerminalSize size);

}  // namespace spillway
