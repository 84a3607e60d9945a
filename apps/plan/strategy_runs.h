#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/plan/planned_run.h"
#include "spillway/strategy_search.h"

namespace spillway {

/// A strategy, and how long a step takes with it.
struct ComparedStrategy : PricedStrategy {
  std::optional<double> trained_s;  ///< if some steps were trained
};

/// Trials whose steps cost the same, and strategies for them.
struct SearchedModel {
  std::vector<std::size_t> trials;         ///< numbers
  std::vector<ComparedStrategy> compared;  ///< known and found ones
  std::map<int, std::size_t> fastest;      ///< of those with a strategy, by number of devices
  int simulated = 0;                       ///< different strategies that were simulated
};

/// For each number of devices the fastest strategy with as many tracks, from the first to the last
/// that is faster than data parallelism without a strategy; in between, also data parallelism.
std::map<int, StrategyConfig> strategies_by_devices(const SearchedModel& model);

/// What a trial has in a run.
struct TrialChoice {
  std::size_t trial = 0, model = 0;
  std::optional<std::size_t> strategy = 0;  ///< of the model; nothing: strategies_by_devices()
  int first_track = 0;                      ///< its tracks are those from here on
  auto operator<=>(const TrialChoice&) const = default;
};

/// A run of all trials that fit.
struct ComparedRun {
  std::string name;
  std::vector<TrialChoice> chosen;  ///< empty: the run as configured
  std::optional<double> run_s;      ///< simulated; nothing: some trial cannot have its strategy
};

/// The strategy of the trial; null: strategies_by_devices().
const ComparedStrategy* compared_of(const TrialChoice& choice,
                                    const std::vector<SearchedModel>& models);
std::string name_of(const TrialChoice& choice, const std::vector<SearchedModel>& models);

/// What changes the number of devices of a trial.
enum class DeviceChanges : std::uint8_t {
  none,
  shares,  ///< trials share all devices
  trials   ///< a trial has limits or rules of its own
};
DeviceChanges device_changes_of(const PlannedRun& run);

/// The trial with a strategy that it always has.
TrialConfig with_strategy(TrialConfig trial, const PricedStrategy& priced);
/// The strategy on the tracks from `first` on.
StrategyConfig beginning_at(int first, StrategyConfig strategy);

/// Simulates the run as configured, unless `is_changed`; with each strategy for all trials; and
/// with the fastest of each model on 1, 2, 4, ... devices. Starting from each of the best
/// three, it changes the strategy of one model at a time, or of one trial if there are at most 8,
/// until no change makes the run shorter, or 100 runs are simulated. Where places matter, because
/// links or devices differ, it also tries other tracks. If the devices of trials change, it also
/// tries strategies by number of devices; if trials have limits or rules of their own, it tries
/// nothing else. Frees the session of the run.
std::vector<ComparedRun> compare_runs(PlannedRun& run, const std::vector<SearchedModel>& models,
                                      bool is_changed);

/// The shortest of the runs. That as configured is preferred if the times differ by noise.
std::size_t shortest_of(const std::vector<ComparedRun>& runs);

}  // namespace spillway
