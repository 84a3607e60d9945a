#include "apps/commands/plan_command.h"

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

/// A trial as planned; `plan` only where it fits.
struct PlannedRow {
  std::string name;
  int virtual_nodes = 0;
  std::int64_t max_steps = 0;
  std::int64_t steps = 0;  ///< that it comes to, as simulated: early stopping may end it before
  std::optional<DoesNotFit> misfit;
  TrialPlan plan;
  std::int64_t parameters = 0;
  bool is_misfit() const { return misfit.has_value(); }
};

/// What a run leaves on the disk of its outputs at most: beside the rest, the little there is.
struct DiskUse {
  Bytes checkpoint_bytes = 0;  ///< of all trials; the run does not begin without room for them
  Bytes weights_bytes = 0;     ///< final ones
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
  out << "Disk: " << format_bytes(disk.checkpoint_bytes) << " for checkpoints, "
      << format_bytes(disk.weights_bytes) << " for final weights; " << format_bytes(disk.free_bytes)
      << (disk.fits() ? " are free" : " are free, too few for the checkpoints,") << " where "
      << folder << " lies\n";
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
  Table table({"trial", "fits", "smallest budget", "parameters", "state bytes", "home", "shards",
               "order", "compute a step"});
  for (const auto& row : rows) {
    if (row.misfit) {
      table.add({row.name, "no", format_bytes(row.misfit->needed), "", "", "", "", "", ""});
    } else {
      table.add({row.name, "yes", format_bytes(row.plan.smallest_budget_bytes),
                 format_count(static_cast<double>(row.parameters)),
                 format_bytes(row.plan.training_state_bytes), format_bytes(row.plan.home_bytes),
                 std::to_string(row.plan.num_shards), row.plan.order,
                 format_fixed(1e3 * row.plan.compute_s_per_step, 1) + " ms"});
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

/// Of a trial whose lanes are made for devices: who takes what, and who nothing.
std::string lanes_text(const TrialPlan& plan) {
  std::string text;
  for (std::size_t lane = 0; lane < plan.lane_devices.size(); ++lane) {
    text += (lane == 0 ? "\n    lanes: " : ", ") + std::to_string(plan.lane_groups[lane]) +
            (lane == 0 ? " reduction groups on " : " on ") + plan.lane_devices[lane];
  }
  for (const auto& sentence : plan.declined) text += "\n    " + sentence;
  return text;
}

/// Plans of equal shapes are said once.
void print_cuts(std::ostream& out, const std::vector<PlannedRow>& rows) {
  std::vector<std::string> seen;
  for (const auto& row : rows) {
    if (row.misfit) continue;
    std::string text;
    for (const auto& shard : row.plan.shards) text += (text.empty() ? "" : " | ") + shard;
    text += "\n    largest unit: weights " + format_bytes(row.plan.unit_weights_bytes) +
            ", gradient sums " + format_bytes(row.plan.unit_sums_bytes) + ", activations " +
            format_bytes(row.plan.unit_activations_bytes) + ", boundaries and batch " +
            format_bytes(row.plan.unit_boundaries_bytes) + "\n    home: weights " +
            format_bytes(row.plan.home_weights_bytes) + ", moments " +
            format_bytes(row.plan.home_moments_bytes) + ", gradient sums " +
            format_bytes(row.plan.home_sums_bytes) + ", boundaries and batches " +
            format_bytes(home_boundaries_bytes(row.plan)) + lanes_text(row.plan);
    if (row.plan.load_ahead_budget_bytes > 0 && !row.plan.loads_ahead) {
      text += "\n    no room to load the next shard while one computes; that takes " +
              format_bytes(row.plan.load_ahead_budget_bytes) + " on a device";
    }
    if (std::ranges::find(seen, text) != seen.end()) continue;
    seen.push_back(text);
    out << "  " << row.name << ": " << text << "\n";
  }
}

/// Virtual nodes that would hide the copies of a run, where a device waits for them noticeably.
std::optional<int> virtual_nodes_to_hide_copies(const RunResult& result,
                                                const std::vector<PlannedRow>& rows) {
  constexpr double kNoticeable = 0.05;  // of compute
  double busy_s = 0;
  for (const auto& device : result.devices) busy_s += device.busy_share * result.wall_s;
  // Waiting for a busy machine to begin a copy is not the link's fault.
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
  const auto a_step = [&](Bytes bytes) {
    return format_bytes(static_cast<Bytes>(static_cast<double>(bytes) / steps));
  };
  Table table({"memory", "budget", "peak", "busy", "to it a step", "from it a step"});
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const auto& device = result.devices[d];
    table.add({device.kind + ":" + std::to_string(d), format_bytes(device.budget_bytes),
               format_bytes(device.peak_bytes), format_percent(device.busy_share),
               a_step(device.h2d_bytes), a_step(device.d2h_bytes)});
  }
  table.add({"host", format_bytes(result.host_budget_bytes), format_bytes(result.host_peak_bytes),
             "", "", ""});
  table.print(out);
  out << "\nMoved: " << format_bytes(result.h2d_bytes) << " to devices, "
      << format_bytes(result.d2h_bytes) << " back; " << a_step(result.h2d_bytes) << " and "
      << a_step(result.d2h_bytes) << " a step of a trial\n"
      << "Time: " << format_fixed(result.wall_s, 1) << " s, "
      << format_fixed(1e3 * result.wall_s / steps, 1) << " ms a step of a trial";
  if (result.copy_hidden_share)
    out << ", " << format_percent(*result.copy_hidden_share) << " of "
        << format_fixed(result.copy_s, 2) << " s of copies hidden under compute, "
        << format_fixed(result.copy_wait_s, 2) << " s waited for copies alone";
  out << "\n";
  if (const auto wanted = virtual_nodes_to_hide_copies(result, rows))
    out << "Devices wait for copies: " << *wanted
        << " virtual nodes of this size would give each load of weights enough compute to hide "
           "under\n";
}

/// How many trials end after how many steps.
void print_early_ends(std::ostream& out, const std::vector<PlannedRow>& rows) {
  std::map<std::int64_t, int> ends;
  for (const auto& row : rows) {
    if (!row.misfit) ++ends[row.steps];
  }
  out << "Early stopping: which trials go on is not known before, and was simulated as if the "
         "first "
         "were the best;";
  const char* before = " ";
  for (const auto& [steps, num] : ends) {
    out << before << num << (num == 1 ? " ends" : " end") << " after " << steps << " steps";
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
  constexpr double kMostOps = 4e5;  // so that a plan takes seconds
  const RunResult result = session.simulate(kMostOps);
  const auto rows = rows_of(session, result, trials, misfits);
  const DiskUse disk = disk_use(rows, trials.front().config);
  const bool fits = disk.fits() && std::ranges::none_of(rows, &PlannedRow::is_misfit);
  if (options.json) {
    out << to_json(result, rows, disk, fits, options.estimate);
  } else {
    if (options.estimate)
      out << "Estimated from shapes: times and activations may be half or twice as much.\n\n";
    print_trials(out, rows);
    out << "\n";
    print_cuts(out, rows);
    out << "\n";
    print_run(out, result, rows);
    if (session_config.early_terminate) print_early_ends(out, rows);
    print_disk(out, disk, trials.front().config.output_dir);
    if (result.simulated_share < 1)
      out << "Totals are extrapolated: one in " << std::llround(1 / result.simulated_share)
          << " steps was simulated\n";
  }
  return fits ? kDone : kDoesNotFit;
}

}  // namespace spillway
