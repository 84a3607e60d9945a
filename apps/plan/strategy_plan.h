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
  std::filesystem::path file;   ///< empty: no search
  bool verify = false;          ///< also train some steps with each known strategy and the best
  bool suggest_pieces = false;  ///< also search the run with other pieces
};

/// The outcome of a search for a run whose layers are divided otherwise.
struct SearchedPieces {
  std::vector<std::string> overrides;
  Bytes least_budget = 0;  ///< of a device
  PricedStrategy best;
};

/// The outcome of a search for a run.
struct FoundStrategy {
  SearchResult result;
  std::string trial;  ///< that was searched
  std::filesystem::path file;
  std::vector<std::string> overrides;  ///< with which the run has what is fastest
  /// Seconds of a step as trained, of each of all() that fits. Empty: nothing was trained.
  std::vector<double> trained_s;
  std::vector<SearchedPieces> pieces;  ///< empty: not searched, or the family has none

  /// Those in SearchResult::known, and the best if it is none of them.
  std::vector<PricedStrategy> all() const;
};

/// Searches for a strategy of the first trial that fits, and writes it to the file, unless the
/// trial is faster without one. Nothing if no trial fits. Throws ConfigError (`--search`,
/// `--proposals`), and what plan_run() throws.
std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options);

/// A table of the strategies, and how to train with the best.
void print(std::ostream& out, const FoundStrategy& found);

}  // namespace spillway
