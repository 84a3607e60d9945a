#include "apps/plan/strategy_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "apps/plan/with_pieces.h"
#include "runs/folder/strategy_file.h"
#include "runs/text/format.h"
#include "runs/text/table.h"

namespace spillway {
namespace {

/// The fastest without a strategy.
const PricedStrategy* best_without(const SearchResult& result) {
  const PricedStrategy* best = nullptr;
  for (const PricedStrategy& known : result.known) {
    if (known.strategy || !known.cost) continue;
    if (best == nullptr || known.cost->step_s < best->cost->step_s) best = &known;
  }
  return best;
}

/// Seconds of a step when the trial trains some alone.
double trained_step_s(TrialConfig trial, const SessionConfig& config,
                      const PricedStrategy& priced) {
  constexpr std::int64_t kSteps = 4;
  trial.train.strategy = priced.strategy;
  trial.train.data_parallel = priced.data_parallel;
  trial.train.max_steps = kSteps;
  trial.train.eval_steps = 0;
  trial.data = std::make_shared<DataSplit>(
      DataSplit{.train = trial.data->train, .eval = nullptr, .augment = trial.data->augment});
  trial.checkpoint = {};
  trial.weights_file.clear();
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

/// `reference_s`: seconds of a step, to which the speed is relative.
std::vector<std::string> row_of(const PricedStrategy& priced, double reference_s) {
  if (!priced.cost) return {priced.name, "does not fit", "", "", "", ""};
  const StepCost& cost = *priced.cost;
  return {priced.name,
          format_seconds(cost.step_s),
          fmt::format("{:.2f}", reference_s / cost.step_s),
          format_bytes(cost.to_device),
          format_bytes(cost.to_host),
          format_bytes(cost.between_devices)};
}

/// How many pairs of strategies have the same order both ways.
std::string order_text(const std::vector<PricedStrategy>& all,
                       const std::vector<double>& trained_s) {
  std::vector<double> planned_s;
  for (const PricedStrategy& priced : all) {
    if (priced.cost) planned_s.push_back(priced.cost->step_s);
  }
  int pairs = 0, same = 0;
  for (std::size_t i = 0; i < planned_s.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (planned_s[i] == planned_s[j]) continue;
      ++pairs;
      same += (planned_s[i] < planned_s[j]) == (trained_s[i] < trained_s[j]) ? 1 : 0;
    }
  }
  return fmt::format("The simulation has the order of {} of {} pairs right\n", same, pairs);
}

std::vector<std::string> overrides_of(const PricedStrategy& best,
                                      const std::filesystem::path& file) {
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

/// The run as configured. If no trial fits, the run with as many lanes as possible, because a lane
/// with fewer groups needs less memory for sums.
PlannedRun planned_to_search(PlanInput input, std::optional<std::size_t> only = std::nullopt) {
  PlannedRun run = plan_run(input, only);
  if (run.session_config.hosts.several()) return run;
  if (!std::ranges::all_of(run.rows, may_have_more_lanes)) return run;
  auto lanes = static_cast<int>(run.session_config.devices.size());
  for (const PlannedRow& row : run.rows) lanes = std::min(lanes, row.train.reduction_groups);
  if (lanes <= run.rows.front().train.data_parallel) return run;
  run.session.reset();  // its devices
  input.overrides.push_back(fmt::format("train.data_parallel={}", lanes));
  return plan_run(input, only);
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
    const PlannedRun other = planned_to_search(divided, trial);
    if (other.rows.front().misfit) continue;
    searched.least_budget = other.rows.front().plan.smallest_budget_bytes;
    searched.best = other.session->search(JobId(0), config).best;
    found.push_back(std::move(searched));
  }
  return found;
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

std::vector<PricedStrategy> FoundStrategy::all() const {
  std::vector<PricedStrategy> all = result.known;
  if (result.best.name == "found") all.push_back(result.best);
  return all;
}

std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options) {
  if (std::filesystem::exists(options.file)) {
    throw ConfigError(
        "--search", 0,
        fmt::format("is {}, which exists; name a new file, or delete it", options.file.string()));
  }
  PlannedRun run = planned_to_search(input);
  const auto fits = std::ranges::find_if_not(run.rows, &PlannedRow::is_misfit);
  if (fits == run.rows.end()) return std::nullopt;
  const auto number = static_cast<std::size_t>(fits - run.rows.begin());
  FoundStrategy found{
      .result = run.session->search(JobId(0), options), .trial = fits->name, .file = options.file};
  run.session.reset();  // its devices
  const PricedStrategy& best = found.result.best;
  found.overrides = overrides_of(best, options.file);
  if (best.strategy) {
    const std::string comment =
        fmt::format("Found for trial {} by spillway plan --search; planned step {}", found.trial,
                    format_seconds(best.cost->step_s));
    write_strategy(options.file, *best.strategy, comment, "--search");
  }
  if (options.suggest_pieces) found.pieces = search_pieces(input, run, number, options);
  if (options.verify) {
    for (const PricedStrategy& priced : found.all()) {
      if (!priced.cost) continue;
      found.trained_s.push_back(trained_step_s(run.configs[number], run.session_config, priced));
    }
  }
  return found;
}

void print(std::ostream& out, const FoundStrategy& found) {
  const SearchResult& result = found.result;
  const PricedStrategy* without = best_without(result);
  const double reference_s = without != nullptr ? without->cost->step_s : result.best.cost->step_s;
  out << fmt::format("Strategies for trial {}: {} simulated\n\n", found.trial, result.simulated);
  const bool is_trained = !found.trained_s.empty();
  std::vector<std::string> titles{"strategy", "step", "speed", "to devices", "to host", "between"};
  if (is_trained) titles.insert(titles.begin() + 2, "trained");
  Table table(std::move(titles));
  auto trained = found.trained_s.begin();
  for (const PricedStrategy& priced : found.all()) {
    std::vector<std::string> row = row_of(priced, reference_s);
    if (is_trained) row.insert(row.begin() + 2, priced.cost ? format_seconds(*trained++) : "");
    table.add(std::move(row));
  }
  table.print(out);
  if (is_trained) out << "\n" << order_text(found.all(), found.trained_s);
  if (result.best.strategy) {
    out << fmt::format("\nWrote {}. It changes no bit of the result. Train with {}\n\n",
                       found.file.string(), in_shell(found.overrides));
  } else {
    out << fmt::format("\nNo strategy is faster than {}; wrote none\n\n", found.overrides.front());
  }
  print_pieces(out, found);
}

}  // namespace spillway
