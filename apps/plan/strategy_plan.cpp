#include "apps/plan/strategy_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <utility>

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

std::vector<std::string> overrides_of(const PricedStrategy& best,
                                      const std::filesystem::path& file) {
  const std::string lanes = fmt::format("train.data_parallel={}", best.data_parallel);
  if (!best.strategy) return {lanes};
  return {lanes, "train.strategy=" + file.string()};
}

}  // namespace

std::optional<FoundStrategy> find_strategy(const PlanInput& input, const SearchOptions& options) {
  if (std::filesystem::exists(options.file)) {
    throw ConfigError(
        "--search", 0,
        fmt::format("is {}, which exists; name a new file, or delete it", options.file.string()));
  }
  const PlannedRun run = plan_run(input);
  const auto fits = std::ranges::find_if_not(run.rows, &PlannedRow::is_misfit);
  if (fits == run.rows.end()) return std::nullopt;
  FoundStrategy found{run.session->search(JobId(0), options), fits->name, options.file, {}};
  const PricedStrategy& best = found.result.best;
  found.overrides = overrides_of(best, options.file);
  if (best.strategy) {
    const std::string comment =
        fmt::format("Found for trial {} by spillway plan --search; planned step {}", found.trial,
                    format_seconds(best.cost->step_s));
    write_strategy(options.file, *best.strategy, comment, "--search");
  }
  return found;
}

void print(std::ostream& out, const FoundStrategy& found) {
  const SearchResult& result = found.result;
  const PricedStrategy* without = best_without(result);
  const double reference_s = without != nullptr ? without->cost->step_s : result.best.cost->step_s;
  out << fmt::format("Strategies for trial {}: {} simulated\n\n", found.trial, result.simulated);
  Table table({"strategy", "step", "speed", "to devices", "to host", "between"});
  for (const PricedStrategy& known : result.known) table.add(row_of(known, reference_s));
  if (result.best.name == "found") table.add(row_of(result.best, reference_s));
  table.print(out);
  if (result.best.strategy) {
    out << fmt::format("\nWrote {}. It changes no bit of the result. Train with {}\n\n",
                       found.file.string(), fmt::join(found.overrides, " "));
  } else {
    out << fmt::format("\nNo strategy is faster than {}; wrote none\n\n", found.overrides.front());
  }
}

}  // namespace spillway
