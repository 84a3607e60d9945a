#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runs/log/run_log.h"

namespace spillway {

/// The names of the metrics of all trials, each once.
std::vector<std::string> metric_names(const RunLog& run);

/// The value of this metric; nullopt if there is none.
std::optional<double> metric_in(const Metrics& metrics, const std::string& name);

/// The value of the run's metric; nullopt if it is unknown or not finite.
std::optional<double> metric_of(const RunLog& run, std::size_t trial);

/// All trials by the run's metric, the best first; those without a value last. Ties keep the order
/// of the log.
std::vector<std::size_t> ranked_trials(const RunLog& run);

/// The first of ranked_trials() that has final weights: it is done, or was stopped early.
std::optional<std::size_t> best_trial(const RunLog& run);

}  // namespace spillway
