#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "apps/plan/planned_run.h"
#include "spillway/strategy_search.h"

namespace spillway {

/// How a run is searched, and where the strategy goes.
struct SearchOptions : SearchConfig {
  std::filesystem::path file;  ///< empty: no search
};

/// The outcome of a search for a run.
struct FoundStrategy {
  SearchResult result;
  std::string trial;  ///< that was searched
  std::filesystem::path file;
  std::vector<std::string> overrides;  ///< with which the run has what is fastest
};

/// Searches a strategy for the first trial that fits, and writes it to the file, unless the trial
/// is faster without one. Nothing if no trial fits. Throws ConfigError (`--search`, `--proposals`),
/// and what plan_run() throws.
std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options);

/// A table of the strategies, and how to train with the best.
void print(std::ostream& out, const FoundStrategy& found);

}  // namespace spillway
