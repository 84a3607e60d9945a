#pragma once

#include <string>
#include <vector>

#include "apps/report/recent_speed.h"
#include "apps/terminal/terminal.h"
#include "runs/log/run_log.h"

namespace spillway {

/// The share of a run that is done, from 0 to 1, by the planned compute of its steps. The remaining
/// steps of failed or stopped trials do not count.
double share_done(const RunLog& run);

/// The lines that show a run in a terminal: a table of the running trials with their swept values
/// as far as they fit, "and N more", then the overall progress and the time left or, if it is
/// `stopping`, what it still writes. Lines fit the terminal's width, and one row stays free for the
/// cursor.
std::vector<std::string> screen_lines(const RunLog& run, const RecentSpeed& speed,
                                      TerminalSize size, bool stopping = false);

}  // namespace spillway
