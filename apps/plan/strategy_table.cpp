#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <tuple>
#include <utility>

#include "apps/plan/strategy_plan.h"
#include "runs/text/format.h"
#include "runs/text/table.h"

/// A search as text.
namespace spillway {
namespace {

/// Seconds of a step without a strategy where it is fastest, else with the fastest strategy; 0 if
/// none fits.
double reference_s(const SearchedModel& model) {
  const auto rank = [](const PricedStrategy& each) {
    return std::tuple(!each.cost, each.strategy.has_value(), each.cost ? each.cost->step_s : 0);
  };
  const auto& cost = std::ranges::min_element(model.compared, {}, rank)->cost;
  return cost ? cost->step_s : 0;
}

std::string seconds_or_dash(std::optional<double> seconds) {
  return seconds ? format_seconds(*seconds) : "-";
}

/// `reference_s`: seconds of a step, to which the speed is relative.
std::vector<std::string> row_of(const ComparedStrategy& each, double reference_s) {
  if (!each.cost) return {each.name, "does not fit", "", "", "", ""};
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

void print(std::ostream& out, const FoundStrategy& found, const SearchedModel& model) {
  const std::size_t others = model.trials.size() - 1;
  out << fmt::format("Strategies for trial {}{}: {} simulated\n\n",
                     found.trials[model.trials.front()],
                     others > 0 ? fmt::format(" and {} like it", others) : "", model.simulated);
  const bool is_trained = std::ranges::any_of(
      model.compared, [](const ComparedStrategy& each) { return each.trained_s.has_value(); });
  std::vector<std::string> titles{"strategy", "step", "speed", "to devices", "to host", "between"};
  if (is_trained) titles.insert(titles.begin() + 2, "trained");
  Table table(std::move(titles));
  const double reference = reference_s(model);
  for (const ComparedStrategy& each : model.compared) {
    std::vector<std::string> row = row_of(each, reference);
    if (is_trained) row.insert(row.begin() + 2, seconds_or_dash(each.trained_s));
    table.add(std::move(row));
  }
  table.print(out);
  if (is_trained) out << "\n" << order_text(model.compared);
  out << "\n";
}

bool is_mixed(const ComparedRun& run) {
  return std::ranges::any_of(run.chosen, [&](const TrialChoice& choice) {
    const TrialChoice& first = run.chosen.front();
    return std::tie(choice.model, choice.strategy, choice.first_track) !=
           std::tie(first.model, first.strategy, first.first_track);
  });
}

void print_runs(std::ostream& out, const FoundStrategy& found) {
  if (found.runs.empty()) return;
  out << "The run with\n\n";
  Table times({std::string("strategy of each trial"), std::string("run")});
  for (const ComparedRun& each : found.runs) times.add({each.name, seconds_or_dash(each.run_s)});
  times.print(out);
  out << "\n";
  const ComparedRun& best = found.runs[found.best];
  if (!is_mixed(best)) return;
  out << "The fastest run has\n\n";
  Table chosen({"trial", "strategy", "first track"});
  for (const TrialChoice& choice : best.chosen) {
    chosen.add({found.trials[choice.trial], name_of(choice, found.models),
                std::to_string(choice.first_track)});
  }
  chosen.print(out);
  out << "\n";
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

/// What the file has.
std::string written_text(const FoundStrategy& found) {
  const std::set<int>& numbers = found.by_devices;
  if (!numbers.empty())
    return fmt::format("strategies for {} {}", fmt::join(numbers, ", "),
                       numbers == std::set{1} ? "device" : "devices");
  if (found.runs.empty()) return fmt::format("'{}'", found.best_alone().name);
  const ComparedRun& best = found.runs[found.best];
  return is_mixed(best) ? "these strategies" : fmt::format("'{}'", best.name);
}

}  // namespace

void print(std::ostream& out, const FoundStrategy& found) {
  for (const SearchedModel& model : found.models) print(out, found, model);
  print_runs(out, found);
  if (found.is_written) {
    out << fmt::format("Wrote {} to {}. This changes no bit of the result. Train with {}\n\n",
                       written_text(found), found.file.string(), in_shell(found.overrides));
  } else {
    const std::string fastest =
        found.overrides.empty() ? "the run as it is configured" : found.overrides.front();
    out << fmt::format("No strategy is faster than {}; wrote none\n\n", fastest);
  }
  print_pieces(out, found);
}

}  // namespace spillway
