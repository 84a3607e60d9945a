#include "apps/plan/planned_run.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runs/folder/prepare.h"
#include "runs/folder/trial_factory.h"
#include "trainer/config/batch_split.h"

namespace spillway {
namespace {

/// Of some steps of a large model: enough to see where its time goes.
constexpr std::size_t kTraceSpans = 100'000;

std::vector<TrialConfig> make_configs(const std::vector<Trial>& trials, Findings& findings) {
  std::vector<TrialConfig> configs;
  TrialFactory factory;
  for (const Trial& trial : trials) {
    configs.push_back(factory.make(trial, findings));
    configs.back().checkpoint = trial.config.checkpoint;
  }
  return configs;
}

std::vector<PlannedRow> rows_of(const Session& session, const std::vector<TrialConfig>& configs,
                                const std::vector<std::optional<DoesNotFit>>& misfits) {
  const std::vector<TrialResult> fitting = session.result().trials;
  std::vector<PlannedRow> rows;
  std::size_t next = 0;  // of the trials that fit
  for (std::size_t t = 0; t < configs.size(); ++t) {
    PlannedRow row{.name = configs[t].name,
                   .train = configs[t].train,
                   .misfit = misfits[t],
                   .samples = num_training_samples(configs[t])};
    row.train.virtual_nodes = virtual_nodes_of(row.train);
    row.train.reduction_groups = reduction_groups_of(row.train);
    if (!row.misfit) {
      row.plan = session.plan(JobId(next));
      row.parameters = fitting[next++].parameters;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Of the trials that fit.
std::vector<TrialPlan> plans_of(const PlannedRun& run) {
  std::vector<TrialPlan> plans;
  for (const PlannedRow& row : run.rows) {
    if (!row.misfit) plans.push_back(row.plan);
  }
  return plans;
}

}  // namespace

TierBytes tiers_of(const PlannedRow& row, const RunConfig& config) {
  const bool in_files = !config.session.offload_path.empty();
  if (row.misfit) {
    const Bytes needed = row.misfit->needed;
    switch (row.misfit->tier) {
      case Tier::device:
        return {.device = needed};
      case Tier::host:
        return in_files ? TierBytes{.disk = needed} : TierBytes{.host = needed};
      case Tier::disk:
        return {.disk = needed};
    }
  }
  const Bytes outputs = row.plan.checkpoint_bytes + row.weights_bytes();
  return {.device = row.plan.smallest_budget_bytes,
          .host = in_files ? 0 : row.plan.home_bytes + row.plan.shared_bytes,
          .disk = outputs + (in_files ? row.plan.home_bytes + row.plan.shared_bytes : 0)};
}

const PlannedRow* PlannedRun::largest_misfit() const {
  const auto needed = [](const PlannedRow& row) { return row.misfit ? row.misfit->needed : 0; };
  const auto largest = std::ranges::max_element(rows, {}, needed);
  return largest->misfit ? &*largest : nullptr;
}

JobId PlannedRun::id_of(std::size_t trial) const {
  const auto before = std::span(rows).first(trial);
  return JobId(static_cast<std::size_t>(std::ranges::count(before, false, &PlannedRow::is_misfit)));
}

bool PlannedRun::fits() const {
  return !largest_misfit() && fits_memory() && std::ranges::all_of(disks, &DiskUse::fits);
}

RunResult PlannedRun::simulate(double most_ops) {
  RunResult result = session->simulate(most_ops);
  auto next = result.trials.begin();  // of the trials that fit
  for (PlannedRow& row : rows) {
    if (!row.misfit) row.steps = (next++)->steps;
  }
  return result;
}

PlannedRun plan_run(const PlanInput& input, std::optional<std::size_t> only) {
  Findings findings;
  auto trials = read_trials(input.config_file, input.overrides, findings);
  if (only) trials = {trials.at(*only)};
  const auto configs = make_configs(trials, findings);
  SessionConfig session = trials.front().config.session;
  session.estimate = input.estimate;
  session.pilot_cache = input.pilot_cache;
  session.max_trace_spans = kTraceSpans;
  session.hosts.endpoint.clear();  // it need not meet the other hosts
  auto submitted =
      submit_new_run(std::move(trials), configs, session, input.machine, std::move(findings));
  const SessionConfig& chosen = submitted.trials.front().config.session;
  session.activation_share = chosen.activation_share;
  PlannedRun run{.trials = std::move(submitted.trials),
                 .configs = configs,
                 .session_config = std::move(session),
                 .session = std::move(submitted.session),
                 .machine = input.machine};
  run.rows = rows_of(*run.session, configs, submitted.misfits);
  const auto plans = plans_of(run);
  run.memory = memory_need(run.config().session, plans);
  run.disks = disk_use(run.config(), plans);
  for (const PlannedRow& row : run.rows) run.disks.front().weights += row.weights_bytes();
  return run;
}

}  // namespace spillway
