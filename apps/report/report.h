#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

#include "runs/log/run_log.h"

/// A run, ended or not, as people and as programs read it.
namespace spillway {

/// The done trial with the best value of the run's metric, the first of equals; none without one.
std::optional<std::size_t> best_trial(const RunLog& run);

/// Tables of the trials and devices, the best trial, what was moved, beside what was planned, and
/// where the outputs lie: in `folder`. Of a run without an end, what is known.
void print_report(std::ostream& out, const RunLog& run, const std::filesystem::path& folder);

/// How far a run has come: it ended; it goes on; its log has no end and nobody writes it.
enum class RunState { ended, running, unfinished };
const char* to_string(RunState state);

/// One JSON document; numbers that do not exist (yet) are null.
std::string json_report(const RunLog& run, RunState state);

/// The totals of json_report(), each number as {"planned": , "actual": }; null where not known.
std::string plan_json(const RunLog& run);

/// A line a trial, with a column for each swept key.
std::string results_csv(const RunLog& run);

}  // namespace spillway
