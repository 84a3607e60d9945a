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

/// A strategy, and how long the run takes with it.
struct ComparedStrategy : PricedStrategy {
  bool is_configured = false;       ///< the run as its configuration says; without a `cost`
  std::optional<double> run_s;      ///< of several trials that all have it, simulated
  std::optional<double> trained_s;  ///< a step of the trial alone, if some were trained
};

/// The outcome of a search for a run.
struct FoundStrategy {
  std::string trial;                       ///< that was searched
  std::vector<ComparedStrategy> compared;  ///< known and found ones
  std::size_t best = 0;                    ///< among them: the fastest
  int simulated = 0;                       ///< different strategies that were simulated
  bool has_several_trials = false;         ///< then the best has the least `run_s`
  std::filesystem::path file;
  std::vector<std::string> overrides;  ///< with which the run has the best
  std::vector<SearchedPieces> pieces;  ///< empty: not searched, or the family has none
};

/// Searches for a strategy of the first trial that fits, and writes it to the file, unless the run
/// is faster without one. If several trials fit, they all get the strategy. The search then also
/// tries strategies for fewer devices, so that trials may train beside each other, and simulates
/// the whole run with each. Nothing if no trial fits. Throws ConfigError (`--search`,
/// `--proposals`), and what plan_run() throws.
std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options);

/// A table of the strategies, and how to train with the best.
void print(std::ostream& out, const FoundStrategy& found);

}  // namespace spillway
