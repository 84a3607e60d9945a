#pragma once

#include <optional>
#include <string>

#include "apps/report/recent_speed.h"
#include "runs/log/run_log.h"
#include "spillway/events.h"

/// The texts of which progress is made, without newlines.
namespace spillway {

/// "1.23k", over the last ten seconds; "-" if unknown.
std::string speed_text(const RunLog& run, const RecentSpeed& speed, std::size_t trial);

/// "    3.2 s  t03  running  step 12/50  loss 2.4130  9.1k tokens/s": the state of a trial. Before
/// its first step the trial's long name follows.
std::string progress_line(const RunLog& run, const RecentSpeed& speed, std::size_t trial);

/// "    3.2 s  t03  resumed after step 12"; empty if the checkpoint event is not shown. Successful
/// ones are shown while the run stops.
std::string checkpoint_line(const RunLog& run, const SessionEvent& event, bool stopping);

/// "   12.1 s  device 1  lost  simulated failure after 100 ops"; the same of a host.
std::string device_line(const RunLog& run, const SessionEvent& event);

/// "stopping: writing the checkpoints of t01, t03": what a run does that ends early.
std::string stopping_text(const RunLog& run);

}  // namespace spillway
