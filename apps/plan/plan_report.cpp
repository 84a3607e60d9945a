#include "apps/plan/plan_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <ostream>
#include <utility>

#include "runs/log/placed_layers.h"
#include "runs/text/format.h"
#include "runs/text/table.h"

namespace spillway {
namespace {

std::string text_of(const std::optional<Bytes>& bytes) { return bytes ? format_bytes(*bytes) : ""; }

void print_trials(std::ostream& out, const PlannedRun& run) {
  Table table({"trial", "fits", "device at least", "host", "disk", "parameters", "shards", "order",
               "compute a step"});
  for (const PlannedRow& row : run.rows) {
    const TierBytes bytes = tiers_of(row, run.config());
    std::vector<std::string> cells{row.name, row.misfit ? "no" : "yes", text_of(bytes.device),
                                   text_of(bytes.host), text_of(bytes.disk)};
    if (row.misfit) {
      cells.resize(9);
    } else {
      cells.insert(cells.end(), {format_count(static_cast<double>(row.parameters)),
                                 fmt::to_string(row.plan.num_shards), row.plan.order,
                                 format_seconds(row.plan.compute_s_per_step)});
    }
    table.add(std::move(cells));
  }
  table.print(out);
  for (const PlannedRow& row : run.rows) {
    if (row.misfit) out << "  " << row.misfit->what() << "\n";
  }
}

Bytes home_boundaries_bytes(const TrialPlan& plan) {
  return plan.home_bytes - plan.home_weights_bytes - plan.home_moments_bytes - plan.home_sums_bytes;
}

std::string shared_text(const TrialPlan& plan) {
  if (plan.shared_bytes == 0) return "";
  return fmt::format("; {} of frozen weights, once for all trials that have them",
                     format_bytes(plan.shared_bytes));
}

/// How a trial's reduction groups are divided among devices, and which devices it does not use.
std::string lanes_text(const TrialPlan& plan) {
  std::string text;
  for (std::size_t lane = 0; lane < plan.lane_devices.size(); ++lane) {
    text += fmt::format("{}{}{} on {}", lane == 0 ? "\n    split: " : ", ", plan.lane_groups[lane],
                        lane == 0 ? " reduction groups" : "", plan.lane_devices[lane]);
  }
  for (const auto& sentence : plan.declined) text += "\n    " + sentence;
  return text;
}

bool has_rows(const std::vector<PlacedLayers>& placement) {
  return std::ranges::any_of(placement, [](const PlacedLayers& placed) {
    return std::ranges::any_of(
        placed.letters, [](const std::string& letter) { return letter.find('A') != letter.npos; });
  });
}

/// What each track computes of the stages of a strategy.
std::string placement_text(const TrialPlan& plan) {
  const std::vector<PlacedLayers> placement = placed_layers(plan);
  if (placement.empty()) return "";
  std::size_t width = 0;
  for (const PlacedLayers& placed : placement) width = std::max(width, placed.layers.size());
  std::string text = fmt::format("\n    {:{}}", "track", width);
  for (std::size_t t = 0; t < placement.front().letters.size(); ++t)
    text += fmt::format("  {:>2}", t);
  text += "   S: part of the batch, P: part of the pieces, O: the whole";
  if (has_rows(placement)) text += ", A: part of the rows";
  for (const auto& [layers, letters] : placement) {
    text += fmt::format("\n    {:{}}", layers, width);
    for (const std::string& letter : letters)
      text += fmt::format("  {:>2}", letter.empty() ? "." : letter);
  }
  return text;
}

/// Prints equal plans once.
void print_cuts(std::ostream& out, const std::vector<PlannedRow>& rows) {
  std::vector<std::string> seen;
  for (const auto& row : rows) {
    if (row.misfit) continue;
    const TrialPlan& plan = row.plan;
    std::string text = fmt::format(
        "{}\n    {}: weights {}, gradient sums {}, activations {}, boundaries and batch "
        "{}\n    training state: weights {}, moments {}, gradient sums {}, boundaries and batches "
        "{}{}{}",
        fmt::join(plan.shards, " | "), plan.shards_stay ? "all stay on the device" : "largest unit",
        format_bytes(plan.unit_weights_bytes), format_bytes(plan.unit_sums_bytes),
        format_bytes(plan.unit_activations_bytes), format_bytes(plan.unit_boundaries_bytes),
        format_bytes(plan.home_weights_bytes), format_bytes(plan.home_moments_bytes),
        format_bytes(plan.home_sums_bytes), format_bytes(home_boundaries_bytes(plan)),
        shared_text(plan), lanes_text(plan) + placement_text(plan));
    if (plan.load_ahead_budget_bytes > 0 && !plan.loads_ahead) {
      text += fmt::format(
          "\n    no room to load the next shard during compute; that takes {} on a "
          "device",
          format_bytes(plan.load_ahead_budget_bytes));
    }
    if (plan.sent_bytes_per_step > 0) {
      text += fmt::format("\n    sends {} a step to other hosts",
                          format_bytes(plan.sent_bytes_per_step));
    }
    if (std::ranges::find(seen, text) != seen.end()) continue;
    seen.push_back(text);
    out << fmt::format("  {}: {}\n", row.name, text);
  }
}

/// The number of virtual nodes that would hide the copies, if devices noticeably wait for them.
std::optional<int> virtual_nodes_to_hide_copies(const RunResult& result,
                                                const std::vector<PlannedRow>& rows) {
  constexpr double kNoticeable = 0.05;  // share of compute time
  double busy_s = 0;
  for (const auto& device : result.devices) busy_s += device.busy_share * result.wall_s;
  // Time in which a busy machine delays the start of a copy does not count.
  const double wait_s = std::min(result.copy_wait_s, result.copy_s);
  if (busy_s <= 0 || wait_s < kNoticeable * busy_s) return std::nullopt;
  int most = 0;
  for (const auto& row : rows) most = std::max(most, row.train.virtual_nodes);
  return static_cast<int>(std::ceil(most * (1 + wait_s / busy_s)));
}

void print_memory(std::ostream& out, const PlannedRun& run) {
  out << fmt::format(
      "Memory of this machine: {} needed, {} for training state and {} for devices; "
      "the machine has {}, {} of them free now\n",
      format_bytes(run.memory.total()), format_bytes(run.memory.homes),
      format_bytes(run.memory.total() - run.memory.homes), format_bytes(run.machine.total),
      format_bytes(run.machine.available));
  if (!run.fits_memory()) out << "  " << MachineTooSmall(run.memory, run.machine).what() << "\n";
  if (const auto warning = warning_of_memory(run.memory, run.machine); !warning.empty())
    out << "  " << warning << "\n";
}

void print_disks(std::ostream& out, const PlannedRun& run) {
  for (const DiskUse& disk : run.disks) {
    std::vector<std::string> uses;
    const auto add = [&](Bytes bytes, const char* use) {
      if (bytes > 0) uses.push_back(fmt::format("{} for {}", format_bytes(bytes), use));
    };
    add(disk.homes, "training state");
    add(disk.checkpoints, "checkpoints");
    add(disk.weights, "final weights");
    out << fmt::format("Disk of {}: {}; {} free{}\n", disk.folder.string(), fmt::join(uses, ", "),
                       format_bytes(disk.free),
                       disk.fits() ? ""
                                   : fmt::format(", not the {} needed before the run starts",
                                                 format_bytes(disk.required())));
  }
}

/// Says of costs that were measured on a busy machine, or long ago.
void print_costs(std::ostream& out, const PlannedRun& run) {
  constexpr double kBusy = 0.1, kOld = 7 * 86400;
  std::int64_t oldest = 0;
  double load = 0;
  for (const PlannedRow& row : run.rows) {
    const std::int64_t measured = row.plan.costs_measured_unix_s;
    if (measured == 0) continue;
    oldest = oldest == 0 ? measured : std::min(oldest, measured);
    load = std::max(load, row.plan.costs_load);
  }
  const double age = std::difftime(std::time(nullptr), static_cast<std::time_t>(oldest));
  if (oldest == 0 || (load < kBusy && age < kOld)) return;
  out << fmt::format("Costs measured up to {} ago under a load of {}{}\n",
                     format_duration(std::max(0.0, age)), format_percent(load),
                     load < kBusy ? "" : ": times may be shorter on a quiet machine");
}

std::string budget_name(const RunConfig& config) {
  return config.session.offload_path.empty() ? "host" : "disk";
}

void print_run(std::ostream& out, const PlannedRun& run, const RunResult& result) {
  const std::vector<PlannedRow>& rows = run.rows;
  double steps = 0;
  for (const auto& row : rows) steps += static_cast<double>(row.steps);
  steps = std::max(1.0, steps);
  const auto per_step = [&](Bytes bytes) {
    return format_bytes(static_cast<Bytes>(static_cast<double>(bytes) / steps));
  };
  Table table({"memory", "budget", "peak", "busy", "in per step", "out per step"});
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const auto& device = result.devices[d];
    table.add({fmt::format("{}:{}", device.kind, d), format_bytes(device.budget_bytes),
               format_bytes(device.peak_bytes), format_percent(device.busy_share),
               per_step(device.h2d_bytes), per_step(device.d2h_bytes)});
  }
  table.add({budget_name(run.config()), format_bytes(result.host_budget_bytes),
             format_bytes(result.host_peak_bytes), "", "", ""});
  table.print(out);
  out << fmt::format("\nMoved: {} to devices, {} back; {} and {} per trial step\n",
                     format_bytes(result.h2d_bytes), format_bytes(result.d2h_bytes),
                     per_step(result.h2d_bytes), per_step(result.d2h_bytes));
  if (result.copy_hidden_share)
    out << fmt::format("Copies: {}, {} of them hidden under compute; devices wait {} for copies\n",
                       format_seconds(result.copy_s), format_percent(*result.copy_hidden_share),
                       format_seconds(result.copy_wait_s));
  if (const auto wanted = virtual_nodes_to_hide_copies(result, rows))
    out << fmt::format(
        "Devices wait for copies: with {} virtual nodes of this size, compute would "
        "hide each load of weights\n",
        *wanted);
}

void print_times(std::ostream& out, const RunResult& result, const PlannedTimes& times) {
  const std::string speed = times.tokens_per_s ? format_count(*times.tokens_per_s) + " tokens/s"
                                               : format_count(times.samples_per_s) + " samples/s";
  out << fmt::format(
      "Time: {} to the end, {} a step of a trial with its update and share of evaluations\n"
      "Speed: {}; an epoch of all trials takes {}\n"
      "Work: training {} and update {} a step{}; devices and host work at the same time\n",
      format_seconds(result.wall_s), format_seconds(times.step_s), speed,
      format_seconds(times.epoch_s), format_seconds(times.training_s),
      format_seconds(times.update_s),
      times.evaluation_s ? fmt::format(", {} an evaluation", format_seconds(*times.evaluation_s))
                         : "");
}

/// Prints how many trials end after how many steps.
void print_early_ends(std::ostream& out, const std::vector<PlannedRow>& rows,
                      EarlyTerminateKind rule) {
  std::map<std::int64_t, int> ends;
  for (const auto& row : rows) {
    if (!row.misfit) ++ends[row.steps];
  }
  const bool stops = rule != EarlyTerminateKind::median && rule != EarlyTerminateKind::pbt;
  out << fmt::format("Early stopping: the simulation assumes that {};",
                     stops ? "the first trials are the best" : "no trial is stopped");
  const char* before = " ";
  for (const auto& [steps, num] : ends) {
    out << fmt::format("{}{} {} after {} steps", before, num, num == 1 ? "ends" : "end", steps);
    before = ", ";
  }
  out << "\n";
}

void print_advice(std::ostream& out, const Advice& advice) {
  if (!advice.remedies.empty()) {
    out << "\nIt fits with one of these, each planned; the fastest first:\n";
    Table table({"add to the command", "device at least", "host", "disk", "a step", "bits"});
    for (const Remedy& remedy : advice.remedies) {
      table.add({in_shell(remedy.overrides), text_of(remedy.needs.device),
                 text_of(remedy.needs.host), text_of(remedy.needs.disk),
                 format_seconds(remedy.step_s), remedy.changes_bits ? "change" : "stay"});
    }
    table.print(out);
  }
  if (!advice.useless.empty())
    out << fmt::format("\nIt does not fit with: {}\n", fmt::join(advice.useless, "; "));
  if (!advice.is_complete)
    out << "Not all changes were tried, since that takes long; others may help too\n";
}

/// What the trials that fit would do.
void print_simulation(std::ostream& out, const PlanReport& report) {
  const PlannedRun& run = report.run;
  out << "\n";
  print_cuts(out, run.rows);
  out << "\n";
  print_run(out, run, report.result);
  print_times(out, report.result, report.times);
  print_costs(out, run);
  if (const auto& early = run.config().session.early_terminate)
    print_early_ends(out, run.rows, early->type);
  print_memory(out, run);
  print_disks(out, run);
  if (report.result.simulated_share < 1)
    out << fmt::format("Totals are extrapolated: one in {} steps was simulated\n",
                       std::llround(1 / report.result.simulated_share));
}

}  // namespace

void print(std::ostream& out, const PlanReport& report) {
  const PlannedRun& run = report.run;
  if (report.estimated)
    out << "Estimated from shapes: times and activations may be wrong by a factor of two.\n\n";
  if (report.largest)
    out << fmt::format("The largest {} that fits, found by {} plans; add to the command: {}\n\n",
                       to_string(run.config().family), report.largest->plans,
                       in_shell(report.largest->overrides));
  if (report.found) print(out, *report.found);
  print_trials(out, run);
  if (!std::ranges::all_of(run.rows, &PlannedRow::is_misfit)) print_simulation(out, report);
  print_advice(out, report.advice);
}

}  // namespace spillway
