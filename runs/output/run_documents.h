#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <limits>
#include <string>

#include "runs/folder/output_folder.h"
#include "runs/log/event_log.h"
#include "runs/log/run_log.h"
#include "spillway/choices.h"

/// Documents about a run, for programs.
namespace spillway {

inline constexpr std::size_t kAllTrials = std::numeric_limits<std::size_t>::max();

/// Unfinished: the run was interrupted or killed.
enum class RunState { ended, running, unfinished };
template <>
inline constexpr std::array kNames<RunState>{"ended", "running", "unfinished"};

/// The run in a folder, and whether another process trains it now. Throws like read_run().
struct ReadRun {
  LoggedRun logged;
  RunState state;
};
ReadRun read_run_and_state(const std::filesystem::path& folder);

/// One JSON document; unknown values are null. It lists all trials in order of the log or, if there
/// are more, the `top` best ones in order of the metric. `folder` is the run's.
std::string json_report(const RunLog& run, const std::filesystem::path& folder, RunState state,
                        std::size_t top = kAllTrials);

/// The totals of json_report(), each value as {"planned": , "actual": }; null if unknown.
std::string plan_json(const RunLog& run);

/// One line per trial, with a column for each swept key.
std::string results_csv(const RunLog& run);

/// Writes results.csv and plan.json. Returns false, and reports it, if one cannot be written.
bool write_outputs(const OutputFolder& folder, const RunLog& run, std::ostream& problems);

}  // namespace spillway
