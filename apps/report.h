#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "apps/output_folder.h"
#include "apps/sweep.h"
#include "trainer/session.h"

/// A finished run, as people and as programs read it. `trials` and `result.trials` are in the same
/// order.
namespace spillway {

/// The done trial with the best value of the metric, the first of equals; none without one.
std::optional<std::size_t> best_trial(const MetricConfig& metric,
                                      const std::vector<TrialResult>& trials);

/// Tables of the trials and devices, the best trial, what was moved, beside what was planned (none:
/// not simulated), where the outputs lie.
void print_report(std::ostream& out, const std::vector<Trial>& trials, const RunResult& result,
                  const std::optional<RunResult>& planned, const OutputFolder& folder);

/// One JSON document; numbers that do not exist (yet) are null.
std::string json_report(const RunResult& result);

/// A line a trial, with a column for each swept key. Source: RFC 4180.
std::string results_csv(const std::vector<Trial>& trials, const RunResult& result);

}  // namespace spillway
