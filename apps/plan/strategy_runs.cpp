#include "apps/plan/strategy_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace spillway {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNoise = 1e-2;  // of run times: each simulation measures the dispatch latency

using Choices = std::vector<TrialChoice>;

/// Whether it matters which devices a strategy for fewer than all gets.
bool do_places_matter(const SessionConfig& config) {
  const auto is_like = [&](const DeviceConfig& device) {
    const DeviceConfig& first = config.devices.front();
    return device.memory == first.memory && device.imitate == first.imitate;
  };
  return !config.links.empty() || !std::ranges::all_of(config.devices, is_like);
}

StrategyConfig data_parallel_on(int devices) {
  std::vector<int> tracks(static_cast<std::size_t>(devices));
  std::iota(tracks.begin(), tracks.end(), 0);
  return {.place = {{.layers = {"*"}, .tracks = std::move(tracks)}}, .chunk = 0};
}

/// Also without outputs.
TrialConfig without_strategy(TrialConfig trial) {
  trial.train.strategy.reset();
  trial.train.strategies.clear();
  trial.checkpoint = {};
  trial.weights_file.clear();
  return trial;
}

class RunComparison {
 public:
  RunComparison(PlannedRun& run, const std::vector<SearchedModel>& models)
      : run_(run), models_(models), places_matter_(do_places_matter(run.session_config)) {
    for (std::size_t m = 0; m < models.size(); ++m) {
      for (std::size_t trial : models[m].trials) trials_.push_back({.trial = trial, .model = m});
    }
    std::ranges::sort(trials_);
  }

  std::vector<ComparedRun> compare(bool is_changed) && {
    if (!is_changed) runs_.push_back({"as configured", {}, run_.simulate(kQuickOps).wall_s});
    run_.session.reset();  // its devices
    const DeviceChanges changes = device_changes_of(run_);
    if (changes != DeviceChanges::none) add_strategies_by_devices();
    if (changes == DeviceChanges::trials) return std::move(runs_);
    for (const ComparedStrategy& each : models_.front().compared) add_named(each.name);
    add_fastest();
    improve();
    return std::move(runs_);
  }

 private:
  /// Unless there is the same run already.
  void add(std::string name, Choices choices) {
    if (std::ranges::count(runs_, choices, &ComparedRun::chosen) > 0) return;
    runs_.push_back({std::move(name), std::move(choices)});
    runs_.back().run_s = run_s(runs_.back().chosen);
  }

  void add_strategies_by_devices() {
    Choices choices = trials_;
    for (TrialChoice& choice : choices) choice.strategy.reset();
    const std::string name = name_of(choices.front(), models_);
    add(name, std::move(choices));
  }

  /// All trials with the strategy of this name, if all models have one.
  void add_named(const std::string& name) {
    Choices choices = trials_;
    for (TrialChoice& choice : choices) {
      const auto& compared = models_[choice.model].compared;
      const auto found = std::ranges::find(compared, name, &ComparedStrategy::name);
      if (found == compared.end()) return;
      choice.strategy = static_cast<std::size_t>(found - compared.begin());
    }
    add(name, std::move(choices));
  }

  /// Each model with its fastest strategy on as many devices. Where places matter, also with the
  /// trials on different devices in turn.
  void add_fastest() {
    const int all = static_cast<int>(run_.session_config.devices.size());
    for (const auto& [devices, strategy] : models_.front().fastest) {
      Choices choices = trials_;
      for (TrialChoice& choice : choices) {
        const auto found = models_[choice.model].fastest.find(devices);
        if (found == models_[choice.model].fastest.end()) return;
        choice.strategy = found->second;
      }
      const std::string name = devices == 1 ? std::string("one device each")
                                            : fmt::format("the fastest on {} devices", devices);
      add(name, choices);
      const int places = all / devices;
      if (!places_matter_ || places == 1) continue;
      for (std::size_t t = 0; t < choices.size(); ++t) {
        choices[t].first_track = static_cast<int>(t) % places * devices;
      }
      add(name + ", in turn", std::move(choices));
    }
  }

  bool has_strategies(const Choices& choices) const {
    return !choices.empty() && std::ranges::all_of(choices, [&](const TrialChoice& choice) {
      const ComparedStrategy* const compared = compared_of(choice, models_);
      return compared && compared->strategy;
    });
  }

  /// From the best runs so far.
  void improve() {
    constexpr std::size_t kStarts = 3;
    std::vector<ComparedRun> starts;
    for (const ComparedRun& each : runs_) {
      if (each.run_s && has_strategies(each.chosen)) starts.push_back(each);
    }
    std::ranges::sort(starts, {}, &ComparedRun::run_s);
    starts.resize(std::min(kStarts, starts.size()));
    for (ComparedRun& start : starts) descend(start);
    const auto best = std::ranges::min_element(starts, {}, &ComparedRun::run_s);
    if (best != starts.end()) add("different strategies", best->chosen);
  }

  /// Changes the strategy of one model, or one trial, until nothing helps.
  void descend(ComparedRun& mix) {
    constexpr std::size_t kMostSingleTrials = 8;
    // Nobody knows which trials early stopping will keep.
    const bool may_change_one =
        trials_.size() <= kMostSingleTrials && !run_.session_config.early_terminate;
    while (true) {
      const Choices last = mix.chosen;
      for (std::size_t m = 0; models_.size() > 1 && m < models_.size(); ++m) {
        const auto is_of_it = [&](const TrialChoice& choice) { return choice.model == m; };
        try_all(m, is_of_it, mix);
      }
      for (const TrialChoice& one : trials_) {
        if (!may_change_one) break;
        if (models_.size() > 1 && models_[one.model].trials.size() == 1) continue;  // tried above
        const auto is_it = [&](const TrialChoice& choice) { return choice.trial == one.trial; };
        try_all(one.model, is_it, mix);
      }
      if (mix.chosen == last) break;
    }
  }

  /// The trials that `is_meant` holds for, with each of the fastest strategies of their model.
  template <typename IsMeant>
  void try_all(std::size_t model, const IsMeant& is_meant, ComparedRun& mix) {
    constexpr std::size_t kMostSimulated = 100;
    const int devices = static_cast<int>(run_.session_config.devices.size());
    for (const auto& [number, strategy] : models_[model].fastest) {
      const int tracks = models_[model].compared[strategy].strategy->num_tracks();
      for (int first = 0; first + tracks <= devices; first += tracks) {
        Choices next = mix.chosen;
        for (TrialChoice& choice : next) {
          if (!is_meant(choice)) continue;
          choice.strategy = strategy;
          choice.first_track = first;
        }
        if (!known_s_.contains(next) && known_s_.size() >= kMostSimulated) return;
        const auto next_s = run_s(next);
        if (next_s && *next_s < *mix.run_s * (1 - kNoise)) {
          mix.chosen = std::move(next);
          mix.run_s = next_s;
        }
        if (!places_matter_) break;
      }
    }
  }

  std::optional<double> run_s(const Choices& choices) {
    const auto [place, is_new] = known_s_.try_emplace(choices);
    if (is_new) place->second = simulated_s(choices);
    return place->second;
  }

  TrialConfig chosen(const TrialChoice& choice) const {
    const TrialConfig& trial = run_.configs[choice.trial];
    const ComparedStrategy* const compared = compared_of(choice, models_);
    if (!compared) {
      TrialConfig by_devices = without_strategy(trial);
      by_devices.train.strategies = strategies_by_devices(models_[choice.model]);
      return by_devices;
    }
    PricedStrategy priced = *compared;
    if (priced.strategy) {
      priced.strategy = beginning_at(choice.first_track, *std::move(priced.strategy));
    }
    return with_strategy(trial, priced);
  }

  std::optional<double> simulated_s(const Choices& choices) const {
    Session session(run_.session_config);
    try {
      for (const TrialChoice& choice : choices) session.submit(chosen(choice));
      return session.simulate(kQuickOps).wall_s;
    } catch (const ConfigError& error) {
      // A trial may have fewer groups than lanes.
      if (error.field != "train.data_parallel") throw;
      return std::nullopt;
    } catch (const DoesNotFit&) {
      return std::nullopt;
    }
  }

  PlannedRun& run_;
  const std::vector<SearchedModel>& models_;
  const bool places_matter_;
  Choices trials_;
  std::map<Choices, std::optional<double>> known_s_;
  std::vector<ComparedRun> runs_;
};

}  // namespace

std::map<int, StrategyConfig> strategies_by_devices(const SearchedModel& model) {
  std::map<int, const ComparedStrategy*> fastest;
  int most = 1;  // as many as there are reduction groups
  for (const ComparedStrategy& each : model.compared) {
    if (!each.strategy) most = std::max(most, each.data_parallel);
    if (!each.cost) continue;
    const int devices = each.strategy ? each.strategy->num_tracks() : each.data_parallel;
    const ComparedStrategy*& best = fastest[devices];
    if (!best || each.cost->step_s < best->cost->step_s) best = &each;
  }
  std::erase_if(fastest, [&](const auto& each) { return each.first > most; });
  const auto has_strategy = [](const auto& each) { return each.second->strategy.has_value(); };
  const auto first = std::ranges::find_if(fastest, has_strategy);
  const auto last = std::find_if(fastest.rbegin(), fastest.rend(), has_strategy).base();
  std::map<int, StrategyConfig> strategies;
  for (auto each = first; each != fastest.end() && each != last; ++each) {
    const auto& [devices, best] = *each;
    strategies.emplace(devices, best->strategy.value_or(data_parallel_on(devices)));
  }
  return strategies;
}

const ComparedStrategy* compared_of(const TrialChoice& choice,
                                    const std::vector<SearchedModel>& models) {
  return choice.strategy ? &models[choice.model].compared[*choice.strategy] : nullptr;
}

std::string name_of(const TrialChoice& choice, const std::vector<SearchedModel>& models) {
  const ComparedStrategy* const compared = compared_of(choice, models);
  return compared ? compared->name : "the fastest on the devices that it has";
}

DeviceChanges device_changes_of(const PlannedRun& run) {
  const auto sets_limits = [](const TrialConfig& trial) {
    const TrainConfig& train = trial.train;
    return train.data_parallel == kAutoDataParallel || train.max_data_parallel > 1 ||
           !train.autoscale.empty();
  };
  if (std::ranges::any_of(run.configs, sets_limits)) return DeviceChanges::trials;
  const bool is_shared = run.session_config.sharing != SharingKind::none;
  return is_shared ? DeviceChanges::shares : DeviceChanges::none;
}

TrialConfig with_strategy(TrialConfig trial, const PricedStrategy& priced) {
  trial = without_strategy(std::move(trial));
  trial.train.strategy = priced.strategy;
  trial.train.data_parallel = priced.data_parallel;
  trial.train.max_data_parallel = 0;
  trial.train.autoscale.clear();
  return trial;
}

StrategyConfig beginning_at(int first, StrategyConfig strategy) {
  for (LayerPlacement& placement : strategy.place) {
    for (int& track : placement.tracks) track += first;
  }
  return strategy;
}

std::vector<ComparedRun> compare_runs(PlannedRun& run, const std::vector<SearchedModel>& models,
                                      bool is_changed) {
  return RunComparison(run, models).compare(is_changed);
}

std::size_t shortest_of(const std::vector<ComparedRun>& runs) {
  const auto time_s = [](const ComparedRun& run) {
    return run.run_s.value_or(kNever) * (run.chosen.empty() ? 1 - kNoise : 1);
  };
  return static_cast<std::size_t>(std::ranges::min_element(runs, {}, time_s) - runs.begin());
}

}  // namespace spillway
