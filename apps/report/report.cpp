#include "apps/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "runs/text/format.h"
#include "runs/text/table.h"
#include "spillway/units.h"

namespace spillway {
namespace {

std::string loss_text(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "-";
}

std::optional<double> metric_of(const MetricConfig& metric, const TrialResult& trial) {
  return metric.name == MetricKind::final_loss ? trial.final_loss : trial.eval_loss;
}

void print_trials(std::ostream& out, const std::vector<TrialLog>& trials) {
  Table table({"trial", "state", "steps", "first loss", "final loss", "eval loss", "parameters",
               "state bytes", "shards", "order", "tokens/s"});
  for (const auto& trial : trials) {
    const auto& t = trial.result;
    table.add({t.name, to_string(t.state), std::to_string(t.steps), loss_text(t.first_loss),
               loss_text(t.final_loss), loss_text(t.eval_loss),
               format_count(static_cast<double>(t.parameters)),
               format_bytes(t.training_state_bytes), std::to_string(t.num_shards), t.order,
               format_count(t.tokens_per_s)});
  }
  table.print(out);
  for (const auto& trial : trials) {
    const auto& t = trial.result;
    if (!t.reason.empty())
      out << fmt::format("  {} {}: {}\n", t.name, to_string(t.state), t.reason);
  }
}

void print_memory(std::ostream& out, const RunResult& result) {
  Table table({"memory", "budget", "peak", "busy", "ops", "loads", "prefetched"});
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const auto& device = result.devices[d];
    table.add({fmt::format("{}:{}", device.kind, d), format_bytes(device.budget_bytes),
               format_bytes(device.peak_bytes), format_percent(device.busy_share),
               std::to_string(device.ops), std::to_string(device.loads),
               std::to_string(device.prefetches)});
  }
  table.add({"host", format_bytes(result.host_budget_bytes), format_bytes(result.host_peak_bytes),
             "", "", "", ""});
  table.print(out);
}

void print_best(std::ostream& out, const RunLog& run) {
  const auto best = best_trial(run);
  if (!best) return;
  const auto& trial = run.trials[*best].result;
  out << fmt::format("\nBest trial: {} ({} {})\n", trial.name, to_string(run.metric.name),
                     loss_text(metric_of(run.metric, trial)));
}

void print_copies(std::ostream& out, const RunResult& result) {
  out << fmt::format("Moved: {} to devices ({} of weights), {} back to the host\n",
                     format_bytes(result.h2d_bytes), format_bytes(result.h2d_weight_bytes),
                     format_bytes(result.d2h_bytes));
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

}  // namespace

std::optional<std::size_t> best_trial(const RunLog& run) {
  const double sign = run.metric.goal == MetricGoal::maximize ? -1 : 1;
  std::optional<std::size_t> best;
  double best_value = 0;
  for (std::size_t t = 0; t < run.trials.size(); ++t) {
    const auto& trial = run.trials[t].result;
    const auto value = metric_of(run.metric, trial);
    if (trial.state != TrialState::done || !value || !std::isfinite(*value)) continue;
    if (best && sign * *value >= best_value) continue;
    best = t;
    best_value = sign * *value;
  }
  return best;
}

void print_report(std::ostream& out, const RunLog& run, const std::filesystem::path& folder) {
  out << "\n";
  print_trials(out, run.trials);
  print_best(out, run);
  if (!run.actual) return;
  print_totals(out, *run.actual, run.planned);
  out << fmt::format(
      "\nOutputs: {} (results.csv, trials/*/metrics.csv, trials/*/weights.safetensors, plan.json,\n"
      "config.yaml, trace.json, events.jsonl)\n",
      folder.string());
}

}  // namespace spillway
