#include "apps/commands/plan_command.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ostream>
#include <utility>

#include "runs/folder/output_folder.h"
#include "runs/folder/prepare.h"
#include "runs/folder/trial_factory.h"
#include "runs/log/run_json.h"
#include "runs/text/format.h"
#include "runs/text/table.h"

namespace spillway {
namespace {

/// A planned trial; `plan` is set only if it fits.
struct PlannedRow {
  std::string name;
  int virtual_nodes = 0;
  std::int64_t max_steps = 0;
  std::int64_t steps = 0;  ///< simulated: early stopping may end a trial before max_steps
  std::optional<DoesNotFit> misfit;
  TrialPlan plan;
  std::int64_t parameters = 0;
  bool is_misfit() const { return misfit.has_value(); }
};

/// The peak disk use of a run's checkpoints and weights; other outputs are small.
struct DiskUse {
  Bytes checkpoint_bytes = 0;  ///< of all trials; required before the run starts
  Bytes weights_bytes = 0;     ///< final weights
  Bytes free_bytes = 0;
  bool fits() const { return checkpoint_bytes <= free_bytes; }
};

DiskUse disk_use(const std::vector<PlannedRow>& rows, const RunConfig& config) {
  DiskUse disk{.free_bytes = OutputFolder(config.output_dir).free_bytes()};
  for (const auto& row : rows) {
    disk.checkpoint_bytes += row.plan.checkpoint_bytes;
    disk.weights_bytes += static_cast<Bytes>(row.parameters) * sizeof(float);
  }
  return disk;
}

void print_disk(std::ostream& out, const DiskUse& disk, const std::string& folder) {
  out << fmt::format(
      "Disk: {} for checkpoints, {} for final weights; {} free{} on the disk of {}\n",
      format_bytes(disk.checkpoint_bytes), format_bytes(disk.weights_bytes),
      format_bytes(disk.free_bytes), disk.fits() ? "" : ", not enough for the checkpoints,",
      folder);
}

std::vector<PlannedRow> rows_of(const Session& session, const RunResult& result,
                                const std::vector<Trial>& trials,
                                const std::vector<std::optional<DoesNotFit>>& misfits) {
  std::vector<PlannedRow> rows;
  std::size_t next = 0;  // of the trials that fit
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const auto& train = trials[t].config.train;
    PlannedRow row{.name = trials[t].name,
                   .virtual_nodes = train.virtual_nodes,
                   .max_steps = train.max_steps,
                   .misfit = misfits[t]};
    if (!row.misfit) {
      row.plan = session.plan(JobId(next));
      row.parameters = result.trials[next].parameters;
      row.steps = result.trials[next++].steps;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_trials(std::ostream& out, const std::vector<PlannedRow>& rows) {
  Table table({"trial", "fits", "smallest budget", "parameters", "state bytes", "host memory",
               "shards", "order", "compute per step"});
  for (const auto& row : rows) {
    if (row.misfit) {
      table.add({row.name, "no", format_bytes(row.misfit->needed), "", "", "", "", "", ""});
    } else {
      table.add({row.name, "yes", format_bytes(row.plan.smallest_budget_bytes),
                 format_count(static_cast<double>(row.parameters)),
                 format_bytes(row.plan.training_state_bytes), format_bytes(row.plan.home_bytes),
                 std::to_string(row.plan.num_shards), row.plan.order,
                 fmt::format("{:.1f} ms", 1e3 * row.plan.compute_s_per_step)});
    }
  }
  table.print(out);
  for (const auto& row : rows) {
    if (row.misfit) out << "  " << row.misfit->what() << "\n";
  }
}

Bytes home_boundaries_bytes(const TrialPlan& plan) {
  return plan.home_bytes - plan.home_weights_bytes - plan.home_moments_bytes - plan.home_sums_bytes;
}

/// How a trial's reduction groups are divided among devices, and which devices it does not use.
std::string lanes_text(const TrialPlan& plan) {
  std::string text;
  for (std::size_t lane = 0; lane < plan.lane_devices.size(); ++lane) {
    text += fmt::format("{}{}{} on {}", lane == 0 ? "\n    lanes: " : ", ", plan.lane_groups[lane],
                        lane == 0 ? " reduction groups" : "", plan.lane_devices[lane]);
  }
  for (const auto& sentence : plan.declined) text += "\n    " + sentence;
  return text;
}

/// Prints equal plans once.
void print_cuts(std::ostream& out, const std::vector<PlannedRow>& rows) {
  std::vector<std::string> seen;
  for (const auto& row : rows) {
    if (row.misfit) continue;
    const TrialPlan& plan = row.plan;
    std::string text = fmt::format(
        "{}\n    largest unit: weights {}, gradient sums {}, activations {}, boundaries and batch "
        "{}\n    host memory: weights {}, moments {}, gradient sums {}, boundaries and batches "
        "{}{}",
        fmt::join(plan.shards, " | "), format_bytes(plan.unit_weights_bytes),
        format_bytes(plan.unit_sums_bytes), format_bytes(plan.unit_activations_bytes),
        format_bytes(plan.unit_boundaries_bytes), format_bytes(plan.home_weights_bytes),
        format_bytes(plan.home_moments_bytes), format_bytes(plan.home_sums_bytes),
        format_bytes(home_boundaries_bytes(plan)), lanes_text(plan));
    if (plan.load_ahead_budget_bytes > 0 && !plan.loads_ahead) {
      text += fmt::format(
          "\n    no room to load the next shard during compute; that takes {} on a "
          "device",
          format_bytes(plan.load_ahead_budget_bytes));
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
  for (const auto& row : rows) most = std::max(most, row.virtual_nodes);
  return static_cast<int>(std::ceil(most * (1 + wait_s / busy_s)));
}

void print_run(std::ostream& out, const RunResult& result, const std::vector<PlannedRow>& rows) {
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
  table.add({"host", format_bytes(result.host_budget_bytes), format_bytes(result.host_peak_bytes),
             "", "", ""});
  table.print(out);
  out << fmt::format(
      "\nMoved: {} to devices, {} back; {} and {} per trial step\n"
      "Time: {:.1f} s, {:.1f} ms per trial step",
      format_bytes(result.h2d_bytes), format_bytes(result.d2h_bytes), per_step(result.h2d_bytes),
      per_step(result.d2h_bytes), result.wall_s, 1e3 * result.wall_s / steps);
  if (result.copy_hidden_share)
    out << fmt::format(
        "; {} of {:.2f} s of copies hidden under compute, {:.2f} s waiting for copies",
        format_percent(*result.copy_hidden_share), result.copy_s, result.copy_wait_s);
  out << "\n";
  if (const auto wanted = virtual_nodes_to_hide_copies(result, rows))
    out << fmt::format(
        "Devices wait for copies: with {} virtual nodes of this size, compute would "
        "hide each load of weights\n",
        *wanted);
}

/// Prints how many trials end after how many steps.
void print_early_ends(std::ostream& out, const std::vector<PlannedRow>& rows,
                      EarlyTerminateKind rule) {
  std::map<std::int64_t, int> ends;
  for (const auto& row : rows) {
    if (!row.misfit) ++ends[row.steps];
  }
  const bool stops = rule != EarlyTerminateKind::median;
  out << fmt::format("Early stopping: the simulation assumes that {};",
                     stops ? "the first trials are the best" : "no trial is stopped");
  const char* before = " ";
  for (const auto& [steps, num] : ends) {
    out << fmt::format("{}{} {} after {} steps", before, num, num == 1 ? "ends" : "end", steps);
    before = ", ";
  }
  out << "\n";
}

Json to_json(const PlannedRow& row) {
  Json json{{"name", row.name}, {"fits", !row.misfit}};
  if (row.misfit) {
    json["smallest_budget_bytes"] = row.misfit->needed;
    json["reason"] = row.misfit->what();
    return json;
  }
  json.update({{"smallest_budget_bytes", row.plan.smallest_budget_bytes},
               {"parameters", row.parameters},
               {"num_shards", row.plan.num_shards},
               {"shards", row.plan.shards},
               {"virtual_nodes", row.virtual_nodes},
               {"lanes", row.plan.lanes},
               {"lane_groups", row.plan.lane_groups},
               {"lane_devices", row.plan.lane_devices},
               {"declined", row.plan.declined},
               {"order", row.plan.order},
               {"loads_ahead", row.plan.loads_ahead},
               {"load_ahead_budget_bytes", row.plan.load_ahead_budget_bytes},
               {"steps", row.max_steps},
               {"simulated_steps", row.steps},
               {"training_state_bytes", row.plan.training_state_bytes},
               {"home_bytes", row.plan.home_bytes},
               {"home_weights_bytes", row.plan.home_weights_bytes},
               {"home_moments_bytes", row.plan.home_moments_bytes},
               {"home_sums_bytes", row.plan.home_sums_bytes},
               {"unit_weights_bytes", row.plan.unit_weights_bytes},
               {"unit_sums_bytes", row.plan.unit_sums_bytes},
               {"unit_activations_bytes", row.plan.unit_activations_bytes},
               {"unit_boundaries_bytes", row.plan.unit_boundaries_bytes},
               {"checkpoint_bytes", row.plan.checkpoint_bytes},
               {"compute_s_per_step", row.plan.compute_s_per_step}});
  return json;
}

std::string to_json(const RunResult& result, const std::vector<PlannedRow>& rows,
                    const DiskUse& disk, bool fits, bool estimated) {
  Json trials = Json::array();
  for (const auto& row : rows) trials.push_back(to_json(row));
  Json json{{"fits", fits}, {"estimated", estimated}};
  json["checkpoint_bytes"] = disk.checkpoint_bytes;
  json["weights_bytes"] = disk.weights_bytes;
  json["disk_free_bytes"] = disk.free_bytes;
  json.update(run_json(std::move(trials), result));
  return to_text(json);
}

}  // namespace

ExitCode plan(const PlanOptions& options, std::ostream& out) {
  Findings findings;
  const auto trials = read_trials(options.config_file, options.overrides, findings);
  std::vector<TrialConfig> configs;
  TrialFactory factory;
  for (const auto& trial : trials) {
    configs.push_back(factory.make(trial, findings));
    configs.back().checkpoint = trial.config.checkpoint;
  }
  auto session_config = trials.front().config.session;
  session_config.estimate = options.estimate;
  session_config.pilot_cache = options.pilot_cache;
  const auto made = make_session(session_config, trials.front(), findings);
  findings.throw_if_any();
  Session& session = *made;
  const auto misfits = submit_all(session, std::move(configs), trials);
  constexpr double kMostOps = 4e5;  // a few seconds
  const RunResult result = session.simulate(kMostOps);
  const auto rows = rows_of(session, result, trials, misfits);
  const DiskUse disk = disk_use(rows, trials.front().config);
  const bool fits = disk.fits() && std::ranges::none_of(rows, &PlannedRow::is_misfit);
  if (options.json) {
    out << to_json(result, rows, disk, fits, options.estimate);
  } else {
    if (options.estimate)
      out << "Estimated from shapes: times and activations may be wrong by a factor of two.\n\n";
    print_trials(out, rows);
    out << "\n";
    print_cuts(out, rows);
    out << "\n";
    print_run(out, result, rows);
    if (const auto& early = session_config.early_terminate)
      print_early_ends(out, rows, early->type);
    print_disk(out, disk, trials.front().config.output_dir);
    if (result.simulated_share < 1)
      out << fmt::format("Totals are extrapolated: one in {} steps was simulated\n",
                         std::llround(1 / result.simulated_share));
  }
  return fits ? kDone : kDoesNotFit;
}

}  // namespace spillway
