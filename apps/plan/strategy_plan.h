#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/plan/planned_run.h"
#include "apps/plan/strategy_runs.h"
#include "spillway/strategy_search.h"

namespace spillway {

/// How a run is searched, and where the strategies go.
struct SearchOptions : SearchConfig {
  std::filesystem::path file;   ///< empty: no search
  bool verify = false;          ///< also train some steps with each strategy
  bool suggest_pieces = false;  ///< also search the first trial with other pieces
};

/// The outcome of a search for a trial whose layers are divided otherwise.
struct SearchedPieces {
  std::vector<std::string> overrides;
  Bytes least_budget = 0;  ///< of a device
  PricedStrategy best;
};

/// The outcome of a search for a run.
struct FoundStrategy {
  std::vector<std::string> trials;  ///< names, by number
  std::optional<int> lanes;         ///< more than configured, because no trial fits with fewer
  DeviceChanges changes = DeviceChanges::none;
  SharingKind sharing = SharingKind::none;
  std::vector<SearchedModel> models;  ///< at least one
  std::vector<ComparedRun> runs;      ///< of several trials; empty: there is one
  std::size_t best = 0;               ///< of `runs`, else of the model's strategies
  std::filesystem::path file;
  bool is_written = false;   ///< whether the file was written
  std::set<int> by_devices;  ///< numbers with a strategy of their own; empty: one for any number
  std::vector<std::string> overrides;  ///< with which the run has the best
  std::vector<SearchedPieces> pieces;  ///< empty: not searched, or the family has none

  /// The strategy of the only trial.
  const ComparedStrategy& best_alone() const { return models.front().compared.at(best); }
};

/// Searches for the strategy with the shortest step for each model whose trials fit. For several
/// trials also on fewer devices, so that they may train beside each other, and simulates runs with
/// these strategies. If the devices of trials may change, it searches for a strategy for each
/// number of devices. Writes the strategies of the fastest run to the file, unless it needs none.
/// Nothing if no trial fits. Throws ConfigError (`--search`, `--proposals`), and what plan_run()
/// throws.
std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options);

/// Tables of the strategies, and how to train with the best.
void print(std::ostream& out, const FoundStrategy& found);

}  // namespace spillway
