#include "apps/plan/strategy_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <tuple>
#include <utility>

#include "apps/plan/with_pieces.h"
#include "runs/folder/strategy_file.h"
#include "runs/text/format.h"
#include "runs/text/table.h"

namespace spillway {
namespace {

/// Seconds of a step without a strategy where it is fastest, else with the fastest strategy.
double reference_s(const FoundStrategy& found) {
  const auto rank = [](const PricedStrategy& each) {
    return std::tuple(!each.cost, each.strategy.has_value(), each.cost ? each.cost->step_s : 0);
  };
  return std::ranges::min_element(found.compared, {}, rank)->cost->step_s;
}

/// The trial with the strategy. It saves nothing.
TrialConfig with_strategy(TrialConfig trial, const PricedStrategy& priced) {
  trial.train.strategy = priced.strategy;
  trial.train.data_parallel = priced.data_parallel;
  trial.checkpoint = {};
  trial.weights_file.clear();
  return trial;
}

/// Seconds of a step when the trial trains some alone.
double trained_step_s(const TrialConfig& any, const SessionConfig& config,
                      const PricedStrategy& priced) {
  constexpr std::int64_t kSteps = 4;
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
  return (commits_s.back() - commits_s.front()) / (kSteps - 1);
}

/// Seconds of the run if all trials that fit have the strategy, simulated. Nothing if they cannot.
std::optional<double> run_s(const PlannedRun& run, const PricedStrategy& priced) {
  Session session(run.session_config);
  try {
    for (std::size_t t = 0; t < run.rows.size(); ++t) {
      if (!run.rows[t].misfit) session.submit(with_strategy(run.configs[t], priced));
    }
    return session.simulate(kQuickOps).wall_s;
  } catch (const ConfigError& error) {
    // A trial may lack a layer of the strategy, or have fewer groups than lanes.
    const bool is_of_one_trial =
        error.field.starts_with("train.strategy.place") || error.field == "train.data_parallel";
    if (!is_of_one_trial) throw;
    return std::nullopt;
  } catch (const DoesNotFit&) {
    return std::nullopt;
  }
}

std::string seconds_or_dash(std::optional<double> seconds) {
  return seconds ? format_seconds(*seconds) : "-";
}

/// `reference_s`: seconds of a step, to which the speed is relative.
std::vector<std::string> row_of(const ComparedStrategy& each, double reference_s) {
  if (!each.cost) return {each.name, each.is_configured ? "" : "does not fit", "", "", "", ""};
  const StepCost& cost = *each.cost;
  return {each.name,
          format_seconds(cost.step_s),
          fmt::format("{:.2f}", reference_s / cost.step_s),
          format_bytes(cost.to_device),
          format_bytes(cost.to_host),
          format_bytes(cost.between_devices)};
}

/// How many pairs of strategies have the same order both ways.
std::string order_text(const std::vector<ComparedStrategy>& all) {
  int pairs = 0, same = 0;
  for (auto one = all.begin(); one != all.end(); ++one) {
    for (auto other = all.begin(); other != one; ++other) {
      if (!one->cost || !other->cost || one->cost->step_s == other->cost->step_s) continue;
      ++pairs;
      const bool is_faster = one->cost->step_s < other->cost->step_s;
      same += is_faster == (*one->trained_s < *other->trained_s) ? 1 : 0;
    }
  }
  return fmt::format("The simulation has the order of {} of {} pairs right\n", same, pairs);
}

std::vector<std::string> overrides_of(const ComparedStrategy& best,
                                      const std::filesystem::path& file) {
  if (best.is_configured) return {};
  const std::string lanes = fmt::format("train.data_parallel={}", best.data_parallel);
  if (!best.strategy) return {lanes};
  return {lanes, "train.strategy=" + file.string()};
}

/// Whether more lanes might make the trial fit.
bool may_have_more_lanes(const PlannedRow& row) {
  const TrainConfig& train = row.train;
  return row.misfit && row.misfit->tier == Tier::device && !train.strategy &&
         train.lane_groups.empty() && train.max_data_parallel == 0;
}

struct RunToSearch {
  PlannedRun run;
  bool has_more_lanes = false;  ///< than configured
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
  return {plan_run(input, only), /*has_more_lanes=*/true};
}

/// The trial with other pieces. Those that do not fit are left out.
std::vector<SearchedPieces> search_pieces(const PlanInput& input, const PlannedRun& run,
                                          std::size_t trial, const SearchConfig& config) {
  std::vector<SearchedPieces> found;
  for (const std::int64_t pieces : {1, 2, 4, 8}) {
    SearchedPieces searched{.overrides = with_pieces(run.config(), pieces)};
    if (searched.overrides.empty()) return {};
    PlanInput divided = input;
    for (const std::string& each : searched.overrides) divided.overrides.push_back(each);
    const PlannedRun other = planned_to_search(divided, trial).run;
    if (other.rows.front().misfit) continue;
    searched.least_budget = other.rows.front().plan.smallest_budget_bytes;
    searched.best = other.session->search(JobId(0), config).best;
    found.push_back(std::move(searched));
  }
  return found;
}

/// For all devices; for several trials also for 2, 4, ... of them.
void search(const Session& session, int devices, const SearchConfig& config, FoundStrategy& found) {
  const SearchResult all = session.search(JobId(0), config);
  found.simulated = all.simulated;
  for (const PricedStrategy& known : all.known) found.compared.push_back({known});
  if (all.best.name == "found") found.compared.push_back({all.best});
  if (!found.has_several_trials) return;
  for (int fewer = 2; fewer < devices; fewer *= 2) {
    SearchConfig other = config;
    other.devices = fewer;
    SearchResult result = session.search(JobId(0), other);
    found.simulated += result.simulated;
    if (!result.best.strategy) continue;
    result.best.name = fmt::format("{}, on {} devices", result.best.name, fewer);
    found.compared.push_back({std::move(result.best)});
  }
}

/// The run as it is configured.
ComparedStrategy as_configured(PlannedRun& run) {
  ComparedStrategy configured;
  configured.name = "as configured";
  configured.is_configured = true;
  configured.run_s = run.simulate(kQuickOps).wall_s;
  return configured;
}

/// What has the shortest run, or for one trial the shortest step.
std::size_t best_of(const FoundStrategy& found) {
  constexpr double kNoise = 1e-2;  // of run times: each simulation measures the dispatch latency
  const auto time_s = [&](const ComparedStrategy& each) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    if (each.is_configured) return *each.run_s * (1 - kNoise);
    if (found.has_several_trials) return each.run_s.value_or(kNever);
    return each.cost ? each.cost->step_s : kNever;
  };
  const auto best = std::ranges::min_element(found.compared, {}, time_s);
  return static_cast<std::size_t>(best - found.compared.begin());
}

void print_pieces(std::ostream& out, const FoundStrategy& found) {
  if (found.pieces.empty()) return;
  out << "With other pieces, which change bits:\n\n";
  Table table({"override", "device at least", "best step", "with"});
  for (const SearchedPieces& pieces : found.pieces) {
    table.add({in_shell(pieces.overrides), format_bytes(pieces.least_budget),
               format_seconds(pieces.best.cost->step_s),
               pieces.best.strategy ? "a strategy" : pieces.best.name});
  }
  table.print(out);
  out << "\n";
}

}  // namespace

std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options) {
  if (std::filesystem::exists(options.file)) {
    throw ConfigError(
        "--search", 0,
        fmt::format("is {}, which exists; name a new file, or delete it", options.file.string()));
  }
  auto [run, has_more_lanes] = planned_to_search(input);
  const auto fits = std::ranges::find_if_not(run.rows, &PlannedRow::is_misfit);
  if (fits == run.rows.end()) return std::nullopt;
  const auto number = static_cast<std::size_t>(fits - run.rows.begin());
  FoundStrategy found{.trial = fits->name, .file = options.file};
  found.has_several_trials = std::ranges::count(run.rows, false, &PlannedRow::is_misfit) > 1;
  search(*run.session, static_cast<int>(run.session_config.devices.size()), options, found);
  if (found.has_several_trials && !has_more_lanes) found.compared.push_back(as_configured(run));
  run.session.reset();  // its devices
  for (ComparedStrategy& each : found.compared) {
    if (found.has_several_trials && each.cost) each.run_s = run_s(run, each);
  }
  found.best = best_of(found);
  const ComparedStrategy& best = found.compared[found.best];
  found.overrides = overrides_of(best, options.file);
  if (best.strategy) {
    const std::string comment =
        fmt::format("Found for trial {} by spillway plan --search; planned step {}", found.trial,
                    format_seconds(best.cost->step_s));
    write_strategy(options.file, *best.strategy, comment, "--search");
  }
  if (options.suggest_pieces) found.pieces = search_pieces(input, run, number, options);
  if (options.verify) {
    for (ComparedStrategy& each : found.compared) {
      if (!each.cost) continue;
      each.trained_s = trained_step_s(run.configs[number], run.session_config, each);
    }
  }
  return found;
}

void print(std::ostream& out, const FoundStrategy& found) {
  out << fmt::format("Strategies for trial {}: {} simulated\n\n", found.trial, found.simulated);
  const ComparedStrategy& best = found.compared[found.best];
  const bool is_trained = std::ranges::any_of(
      found.compared, [](const ComparedStrategy& each) { return each.trained_s.has_value(); });
  std::vector<std::string> titles{"strategy", "step", "speed", "to devices", "to host", "between"};
  if (is_trained) titles.insert(titles.begin() + 2, "trained");
  if (found.has_several_trials) titles.emplace_back("all trials");
  Table table(std::move(titles));
  const double reference = reference_s(found);
  for (const ComparedStrategy& each : found.compared) {
    std::vector<std::string> row = row_of(each, reference);
    if (is_trained) row.insert(row.begin() + 2, seconds_or_dash(each.trained_s));
    if (found.has_several_trials) row.push_back(seconds_or_dash(each.run_s));
    table.add(std::move(row));
  }
  table.print(out);
  if (is_trained) out << "\n" << order_text(found.compared);
  if (best.strategy) {
    out << fmt::format("\nWrote '{}' to {}. It changes no bit of the result. Train with {}\n\n",
                       best.name, found.file.string(), in_shell(found.overrides));
  } else {
    const std::string fastest =
        best.is_configured ? "the run as it is configured" : found.overrides.front();
    out << fmt::format("\nNo strategy is faster than {}; wrote none\n\n", fastest);
  }
  print_pieces(out, found);
}

}  // namespace spillway
