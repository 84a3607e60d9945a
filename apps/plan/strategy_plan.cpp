#include "apps/plan/strategy_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "apps/plan/with_pieces.h"
#include "core/base/config_check.h"
#include "runs/folder/strategy_file.h"
#include "runs/text/format.h"

namespace spillway {
namespace {

/// Seconds of a step when the trial trains some alone: the median of the last ones. In the first
/// ones the system still maps memory, so they take longer.
double trained_step_s(const TrialConfig& any, SessionConfig config, const PricedStrategy& priced) {
  config.sharing = SharingKind::none;
  config.early_terminate.reset();
  constexpr std::int64_t kSteps = 10, kMeasured = 5;
  TrialConfig trial = with_strategy(any, priced);
  trial.train.max_steps = kSteps;
  trial.train.eval_steps = 0;
  trial.data = std::make_shared<DataSplit>(
      DataSplit{.train = trial.data->train, .eval = nullptr, .augment = trial.data->augment});
  Session session(config);
  session.submit(std::move(trial));
  session.run();
  std::vector<double> commits_s;
  for (const SessionEvent& event : session.poll(0, 0)) {
    if (event.kind == SessionEvent::Kind::step) commits_s.push_back(event.time_s);
  }
  if (commits_s.size() < kSteps) throw Error(session.result().trials.front().reason);
  std::vector<double> steps_s;
  for (std::size_t i = kSteps - kMeasured; i < kSteps; ++i)
    steps_s.push_back(commits_s[i] - commits_s[i - 1]);
  std::ranges::nth_element(steps_s, steps_s.begin() + kMeasured / 2);
  return steps_s[kMeasured / 2];
}

/// Whether more lanes might make the trial fit.
bool may_have_more_lanes(const PlannedRow& row) {
  const TrainConfig& train = row.train;
  return row.misfit && row.misfit->tier == Tier::device && !train.strategy &&
         train.strategies.empty() && train.lane_groups.empty() && train.max_data_parallel == 0;
}

struct RunToSearch {
  PlannedRun run;
  std::optional<int> lanes;  ///< more than configured
};

/// The run as configured. If no trial fits, the run with as many lanes as possible, because a lane
/// with fewer groups needs less memory for sums.
RunToSearch planned_to_search(PlanInput input, std::optional<std::size_t> only = std::nullopt) {
  PlannedRun run = plan_run(input, only);
  if (run.session_config.hosts.several()) return {std::move(run)};
  if (!std::ranges::all_of(run.rows, may_have_more_lanes)) return {std::move(run)};
  auto lanes = static_cast<int>(run.session_config.devices.size());
  for (const PlannedRow& row : run.rows) lanes = std::min(lanes, row.train.reduction_groups);
  if (lanes <= run.rows.front().train.data_parallel) return {std::move(run)};
  run.session.reset();  // its devices
  input.overrides.push_back(fmt::format("train.data_parallel={}", lanes));
  return {plan_run(input, only), lanes};
}

/// The trial with other pieces. Leaves out pieces that do not fit, and those that other values of
/// the sweep do not allow.
std::vector<SearchedPieces> search_pieces(const PlanInput& input, const PlannedRun& run,
                                          std::size_t trial, const SearchConfig& config) {
  std::vector<SearchedPieces> found;
  const auto search = [&](const std::vector<std::string>& overrides) {
    PlanInput divided = input;
    for (const std::string& each : overrides) divided.overrides.push_back(each);
    try {
      const PlannedRun other = planned_to_search(divided, trial).run;
      if (other.rows.front().misfit) return;
      found.push_back({.overrides = overrides,
                       .least_budget = other.rows.front().plan.smallest_budget_bytes,
                       .best = other.session->search(JobId(0), config).best});
    } catch (const ConfigErrors&) {
    }
  };
  for (const std::int64_t pieces : {1, 2, 4, 8}) {
    for (const auto& overrides : with_pieces(run.trials[trial].config, pieces)) search(overrides);
  }
  return found;
}

/// Whether their steps cost the same. Costs are measured once for layers that are alike.
bool are_alike(const PlannedRow& one, const PlannedRow& other) {
  const auto facts = [](const PlannedRow& row) {
    return std::tuple(row.parameters, row.train.virtual_nodes, row.train.reduction_groups,
                      row.plan.compute_s_per_step, row.plan.home_bytes,
                      row.plan.smallest_budget_bytes, row.plan.shards);
  };
  return facts(one) == facts(other);
}

/// The trials that fit, by model.
std::vector<SearchedModel> models_of(const std::vector<PlannedRow>& rows) {
  std::vector<SearchedModel> models;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    if (rows[t].misfit) continue;
    const auto known = std::ranges::find_if(models, [&](const SearchedModel& model) {
      return are_alike(rows[model.trials.front()], rows[t]);
    });
    (known == models.end() ? models.emplace_back() : *known).trials.push_back(t);
  }
  return models;
}

enum class Among { all, with_strategy };

/// The fastest of those that fit.
std::size_t fastest(Among among, const std::vector<ComparedStrategy>& compared) {
  const auto rank = [&](const ComparedStrategy& each) {
    const bool counts = each.cost && (among == Among::all || each.strategy);
    return std::pair(!counts, counts ? each.cost->step_s : 0);
  };
  return static_cast<std::size_t>(std::ranges::min_element(compared, {}, rank) - compared.begin());
}

/// Known strategies and what is found, on so many devices.
std::vector<ComparedStrategy> searched(const Session& session, JobId id, SearchConfig config,
                                       int devices, SearchedModel& model) {
  config.devices = devices;
  const SearchResult result = session.search(id, config);
  model.simulated += result.simulated;
  std::vector<ComparedStrategy> compared;
  for (const PricedStrategy& known : result.known) compared.push_back({known});
  if (result.best.name == "found") compared.push_back({result.best});
  return compared;
}

/// The most that a trial of the model may have.
int most_devices_of(const SearchedModel& model, const PlannedRun& run) {
  const int all = static_cast<int>(run.session_config.devices.size());
  if (device_changes_of(run) != DeviceChanges::trials) return all;
  int most = 1;
  for (std::size_t trial : model.trials) {
    const int limit = run.configs[trial].train.max_data_parallel;
    most = std::max(most, limit > 0 ? std::min(limit, all) : all);
  }
  return most;
}

/// On all devices that it may have; if trials may have fewer, also on 2, 4, ... of them.
void search(const Session& session, JobId id, const SearchConfig& config, int devices,
            bool may_have_fewer, SearchedModel& model) {
  model.compared = searched(session, id, config, devices, model);
  if (!may_have_fewer) return;
  const std::size_t on_all = fastest(Among::with_strategy, model.compared);
  const auto one = std::ranges::find_if(model.compared, [](const ComparedStrategy& each) {
    return each.strategy && each.cost && each.strategy->num_tracks() == 1;
  });
  if (one != model.compared.end())
    model.fastest[1] = static_cast<std::size_t>(one - model.compared.begin());
  for (int fewer = 2; fewer < devices; fewer *= 2) {
    auto compared = searched(session, id, config, fewer, model);
    ComparedStrategy& best = compared[fastest(Among::with_strategy, compared)];
    if (!best.strategy || !best.cost) continue;
    best.name = fmt::format("{}, on {} devices", best.name, fewer);
    model.fastest[fewer] = model.compared.size();
    model.compared.push_back(std::move(best));
  }
  const ComparedStrategy& best = model.compared[on_all];
  if (best.strategy && best.cost) model.fastest[devices] = on_all;
}

/// Adds those by number of devices.
void add_by_devices(std::vector<std::string> trials, const SearchedModel& model,
                    std::vector<TrialsStrategy>& strategies) {
  for (auto& [devices, strategy] : strategies_by_devices(model)) {
    strategies.push_back({trials, devices, std::move(strategy)});
  }
}

/// The strategies of a run, each with its trials; none if a trial has none.
std::vector<TrialsStrategy> chosen_strategies(const FoundStrategy& found, const ComparedRun& run) {
  std::vector<TrialsStrategy> strategies;
  std::map<std::pair<const ComparedStrategy*, int>, std::size_t> numbers;
  for (const TrialChoice& choice : run.chosen) {
    const ComparedStrategy* const compared = compared_of(choice, found.models);
    if (!compared->strategy) return {};
    const auto [place, is_new] =
        numbers.try_emplace({compared, choice.first_track}, strategies.size());
    if (is_new)
      strategies.push_back({{}, 0, beginning_at(choice.first_track, *compared->strategy)});
    strategies[place->second].trials.push_back(found.trials[choice.trial]);
  }
  return strategies;
}

/// Other trials, such as those that do not fit now and clones, get one device, or are data-parallel
/// if the devices of trials change.
std::vector<TrialsStrategy> strategies_of(const FoundStrategy& found, const ComparedRun& run) {
  std::vector<TrialsStrategy> strategies;
  if (!run.chosen.front().strategy) {
    for (const SearchedModel& model : found.models) {
      std::vector<std::string> trials;
      for (std::size_t trial : model.trials) trials.push_back(found.trials[trial]);
      add_by_devices(std::move(trials), model, strategies);
    }
    return strategies;
  }
  strategies = chosen_strategies(found, run);
  const bool is_for_all = strategies.size() <= 1 && run.chosen.size() == found.trials.size();
  if (!strategies.empty() && !is_for_all)
    strategies.push_back({{"*"}, 0, {.place = {{.layers = {"*"}}}}});
  return strategies;
}

/// The strategies of the best, and how long they are planned to take.
struct Best {
  std::vector<TrialsStrategy> strategies;
  std::optional<int> data_parallel;  ///< nothing: as configured
  std::string planned;
};

/// Nothing: the run as it is configured.
std::optional<Best> best_of(const FoundStrategy& found) {
  if (found.runs.empty()) {
    const ComparedStrategy& best = found.best_alone();
    if (!best.cost) return std::nullopt;
    Best alone{.planned = "step " + format_seconds(best.cost->step_s)};
    if (found.changes != DeviceChanges::none) {
      alone.data_parallel = found.lanes;
      add_by_devices({"*"}, found.models.front(), alone.strategies);
    } else {
      alone.data_parallel = best.data_parallel;
      if (best.strategy) alone.strategies = {{{"*"}, 0, *best.strategy}};
    }
    return alone;
  }
  const ComparedRun& best = found.runs[found.best];
  if (best.chosen.empty() || !best.run_s) return std::nullopt;
  Best run{.strategies = strategies_of(found, best),
           .data_parallel = found.lanes,
           .planned = "run " + format_seconds(*best.run_s)};
  if (const ComparedStrategy* const first = compared_of(best.chosen.front(), found.models))
    run.data_parallel = first->data_parallel;
  return run;
}

/// Writes the best, if it needs a file, and says how to train with it.
void write(FoundStrategy& found) {
  const std::optional<Best> best = best_of(found);
  if (!best) return;
  if (best->data_parallel)
    found.overrides.push_back(fmt::format("train.data_parallel={}", *best->data_parallel));
  if (best->strategies.empty()) return;
  found.is_written = true;
  if (found.sharing != SharingKind::none && best->strategies.front().devices > 0)
    found.overrides.push_back(fmt::format("scheduling.sharing={}", to_string(found.sharing)));
  found.overrides.push_back("train.strategy=" + found.file.string());
  for (const TrialsStrategy& each : best->strategies) {
    if (each.devices > 0) found.by_devices.insert(each.devices);
  }
  const std::string comment = "Found by spillway plan --search; planned " + best->planned;
  write_strategies(found.file, best->strategies, comment, "--search");
}

}  // namespace

std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options) {
  if (std::filesystem::exists(options.file)) {
    throw ConfigError(
        "--search", 0,
        fmt::format("is {}, which exists; name a new file, or delete it", options.file.string()));
  }
  auto [run, lanes] = planned_to_search(input);
  FoundStrategy found{.lanes = lanes, .models = models_of(run.rows), .file = options.file};
  if (found.models.empty()) return std::nullopt;
  for (const PlannedRow& row : run.rows) found.trials.push_back(row.name);
  const auto fitting = std::ranges::count(run.rows, false, &PlannedRow::is_misfit);
  found.changes = device_changes_of(run);
  found.sharing = run.session_config.sharing;
  const bool may_have_fewer = fitting > 1 || found.changes != DeviceChanges::none;
  for (SearchedModel& model : found.models) {
    search(*run.session, run.id_of(model.trials.front()), options, most_devices_of(model, run),
           may_have_fewer, model);
  }
  if (fitting > 1) found.runs = compare_runs(run, found.models, lanes.has_value());
  run.session.reset();  // its devices
  found.best =
      fitting > 1 ? shortest_of(found.runs) : fastest(Among::all, found.models.front().compared);
  write(found);
  const std::size_t first = found.models.front().trials.front();
  if (options.suggest_pieces) found.pieces = search_pieces(input, run, first, options);
  for (SearchedModel& model : found.models) {
    for (ComparedStrategy& each : model.compared) {
      if (!options.verify || !each.cost) continue;
      each.trained_s = trained_step_s(run.configs[model.trials.front()], run.session_config, each);
    }
  }
  return found;
}

}  // namespace spillway
