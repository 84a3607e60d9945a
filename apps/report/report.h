#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <limits>
#include <string>

#include "runs/log/run_log.h"
#include "spillway/choices.h"

/// Reports of a finished or unfinished run, for people and for programs. `folder` is the run's.
namespace spillway {

inline constexpr std::size_t kAllTrials = std::numeric_limits<std::size_t>::max();

/// Unfinished: the run was interrupted or killed.
enum class RunState { ended, running, unfinished };
template <>
inline constexpr std::array kNames<RunState>{"ended", "running", "unfinished"};

/// Prints the table of trials by the run's metric, of the `top` best ones; the best trial, the
/// table of devices, planned and actual totals, and the outputs. Leaves out what an unfinished run
/// does not know yet.
void print_report(std::ostream& out, const RunLog& run, const std::filesystem::path& folder,
                  std::size_t top = kAllTrials);

/// "spillway resume 'runs/sweep'".
std::string resume_command(const std::filesystem::path& folder);

/// One JSON document; unknown values are null. It lists all trials in order of the log or, if there
/// are more, the `top` best ones in order of the metric.
std::string json_report(const RunLog& run, const std::filesystem::path& folder, RunState state,
                        std::size_t top = kAllTrials);

/// The totals of json_report(), each value as {"planned": , "actual": }; null if unknown.
std::string plan_json(const RunLog& run);

/// One line per trial, with a column for each swept key.
std::string results_csv(const RunLog& run);

}  // namespace spillway
