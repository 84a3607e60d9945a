#include "apps/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "apps/report/trial_table.h"
#include "runs/log/trial_names.h"
#include "runs/output/ranking.h"
#include "runs/text/format.h"
#include "runs/text/table.h"
#include "spillway/units.h"

namespace spillway {
namespace {

void print_trials(std::ostream& out, const RunLog& run, std::size_t top) {
  auto shown = ranked_trials(run);
  shown.resize(std::min(shown.size(), top));
  trial_table(run, shown).print(out);
  if (shown.size() < run.trials.size())
    out << fmt::format("  and {} more\n", run.trials.size() - shown.size());
  for (const std::size_t trial : shown) {
    const auto& t = run.trials[trial].result;
    if (!t.reason.empty())
      out << fmt::format("  {} {}: {}\n", short_name(run, trial), to_string(t.state), t.reason);
  }
}

void print_memory(std::ostream& out, const RunResult& result) {
  Table table({"memory", "budget", "peak", "busy", "ops", "loads", "prefetched"});
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const auto& device = result.devices[d];
    table.add({fmt::format("{}:{}", device.kind, d), format_bytes(device.budget_bytes),
               format_bytes(device.peak_bytes), format_percent(device.busy_share),
               fmt::to_string(device.ops), fmt::to_string(device.loads),
               fmt::to_string(device.prefetches)});
  }
  table.add({"host", format_bytes(result.host_budget_bytes), format_bytes(result.host_peak_bytes),
             "", "", "", ""});
  table.print(out);
}

void print_best(std::ostream& out, const RunLog& run, const std::filesystem::path& folder) {
  const auto best = best_trial(run);
  if (!best) return;
  out << fmt::format("\nBest trial: {} ({} {}), in {}\n", short_name(run, *best),
                     to_string(run.metric.name), loss_text(metric_of(run, *best)),
                     trial_folder(folder, run.trials[*best].result.name).string());
}

void print_copies(std::ostream& out, const RunResult& result) {
  std::string weights = format_bytes(result.h2d_weight_bytes) + " of weights";
  if (result.h2d_shared_bytes > 0)
    weights += fmt::format(", of which trials share {}", format_bytes(result.h2d_shared_bytes));
  out << fmt::format("Moved: {} to devices ({}), {} back to the host\n",
                     format_bytes(result.h2d_bytes), weights, format_bytes(result.d2h_bytes));
  if (result.copy_hidden_share)
    out << fmt::format(
        "Copies: {:.2f} s, {} hidden under compute; devices waited {:.2f} s for copies\n",
        result.copy_s, format_percent(*result.copy_hidden_share), result.copy_wait_s);
}

Bytes largest_peak(const RunResult& result) {
  Bytes peak = 0;
  for (const auto& device : result.devices) peak = std::max(peak, device.peak_bytes);
  return peak;
}

void print_plan(std::ostream& out, const RunResult& planned, const RunResult& actual) {
  Table table({"", "planned", "actual"});
  const auto add = [&](const char* name, const auto& format, const auto& value) {
    table.add({name, format(value(planned)), format(value(actual))});
  };
  const auto add_bytes = [&](const char* name, Bytes RunResult::*bytes) {
    add(name, format_bytes, [&](const RunResult& result) { return result.*bytes; });
  };
  add(
      "time", [](double s) { return fmt::format("{:.1f} s", s); },
      [](const RunResult& result) { return result.wall_s; });
  add("largest device peak", format_bytes, largest_peak);
  add_bytes("host peak", &RunResult::host_peak_bytes);
  add_bytes("to devices", &RunResult::h2d_bytes);
  add_bytes("weights of these", &RunResult::h2d_weight_bytes);
  add_bytes("back to the host", &RunResult::d2h_bytes);
  table.print(out);
}

void print_totals(std::ostream& out, const RunResult& actual,
                  const std::optional<RunResult>& planned) {
  out << "\n";
  print_memory(out, actual);
  out << "\n";
  print_copies(out, actual);
  if (!planned) return;
  out << "\n";
  print_plan(out, *planned, actual);
}

void print_outputs(std::ostream& out, const RunLog& run, const std::filesystem::path& folder) {
  const auto any = [&](const auto& has) { return std::ranges::any_of(run.trials, has); };
  std::string of_trials = "metrics.csv";
  if (any([](const TrialLog& trial) { return !trial.result.weights_xxh3.empty(); }))
    of_trials += ", weights.safetensors";
  if (any([](const TrialLog& trial) { return trial.saved.has_value(); }))
    of_trials += ", checkpoints";
  out << fmt::format(
      "\nOutputs: {}\n"
      "  results.csv, plan.json, config.yaml, trace.json, events.jsonl\n"
      "  of each trial, in trials/NAME: {}\n",
      folder.string(), of_trials);
}

}  // namespace

std::string resume_command(const std::filesystem::path& folder) {
  return fmt::format("spillway resume '{}'", folder.string());
}

void print_report(std::ostream& out, const RunLog& run, const std::filesystem::path& folder,
                  std::size_t top) {
  out << "\n";
  print_trials(out, run, top);
  print_best(out, run, folder);
  if (run.actual) {
    print_totals(out, *run.actual, run.planned);
    print_outputs(out, run, folder);
  }
}

}  // namespace spillway
