#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

#include "runs/log/run_log.h"

/// Reports of a finished or unfinished run, for people and for programs.
namespace spillway {

/// The finished trial with the best value of the run's metric; ties go to the first.
std::optional<std::size_t> best_trial(const RunLog& run);

/// Prints tables of trials and devices, the best trial, planned and actual totals, and the outputs
/// in `folder`. Leaves out what an unfinished run does not know yet.
void print_report(std::ostream& out, const RunLog& run, const std::filesystem::path& folder);

/// Unfinished: the run was interrupted or killed.
enum class RunState { ended, running, unfinished };
const char* to_string(RunState state);

/// One JSON document; unknown values are null.
std::string json_report(const RunLog& run, RunState state);

/// The totals of json_report(), each value as {"planned": , "actual": }; null if unknown.
std::string plan_json(const RunLog& run);

/// One line per trial, with a column for each swept key.
std::string results_csv(const RunLog& run);

}  // namespace spillway
