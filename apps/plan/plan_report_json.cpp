#include <utility>

#include "apps/plan/plan_report.h"
#include "runs/log/run_json.h"

namespace spillway {
namespace {

Json to_json(const PlannedRow& row, const RunConfig& config) {
  const TierBytes bytes = tiers_of(row, config);
  Json json{{"name", row.name},
            {"fits", !row.misfit},
            {"device_bytes", or_null(bytes.device)},
            {"host_bytes", or_null(bytes.host)},
            {"disk_bytes", or_null(bytes.disk)}};
  if (row.misfit) {
    if (bytes.device) json["smallest_budget_bytes"] = *bytes.device;
    json["reason"] = row.misfit->what();
    return json;
  }
  json.update({{"smallest_budget_bytes", row.plan.smallest_budget_bytes},
               {"parameters", row.parameters},
               {"num_shards", row.plan.num_shards},
               {"shards", row.plan.shards},
               {"virtual_nodes", row.train.virtual_nodes},
               {"data_parallel", row.plan.lanes},
               {"groups", row.plan.lane_groups},
               {"devices", row.plan.lane_devices},
               {"placement", row.plan.placement},
               {"declined", row.plan.declined},
               {"order", row.plan.order},
               {"shards_stay", row.plan.shards_stay},
               {"loads_ahead", row.plan.loads_ahead},
               {"load_ahead_budget_bytes", row.plan.load_ahead_budget_bytes},
               {"steps", row.train.max_steps},
               {"simulated_steps", row.steps},
               {"training_state_bytes", row.plan.training_state_bytes},
               {"offload_bytes", row.plan.home_bytes},
               {"shared_offload_bytes", row.plan.shared_bytes},
               {"offload_weights_bytes", row.plan.home_weights_bytes},
               {"offload_moments_bytes", row.plan.home_moments_bytes},
               {"offload_sums_bytes", row.plan.home_sums_bytes},
               {"unit_weights_bytes", row.plan.unit_weights_bytes},
               {"unit_sums_bytes", row.plan.unit_sums_bytes},
               {"unit_activations_bytes", row.plan.unit_activations_bytes},
               {"unit_boundaries_bytes", row.plan.unit_boundaries_bytes},
               {"checkpoint_bytes", row.plan.checkpoint_bytes},
               {"sent_bytes_per_step", row.plan.sent_bytes_per_step},
               {"costs_measured_unix_s", row.plan.costs_measured_unix_s},
               {"costs_load", row.plan.costs_load},
               {"compute_s_per_step", row.plan.compute_s_per_step}});
  return json;
}

Json to_json(const MemoryNeed& need, const HostMemory& machine) {
  return {{"needed_bytes", need.total()},
          {"offload_bytes", need.homes},
          {"device_bytes", need.devices},
          {"total_bytes", machine.total},
          {"available_bytes", machine.available}};
}

Json to_json(const DiskUse& disk) {
  return {{"folder", disk.folder.string()},
          {"offload_bytes", disk.homes},
          {"checkpoint_bytes", disk.checkpoints},
          {"weights_bytes", disk.weights},
          {"free_bytes", disk.free}};
}

Json to_json(const PlannedTimes& times) {
  return {{"step_s", times.step_s},
          {"training_s", times.training_s},
          {"update_s", times.update_s},
          {"evaluation_s", or_null(times.evaluation_s)},
          {"samples_per_s", times.samples_per_s},
          {"tokens_per_s", or_null(times.tokens_per_s)},
          {"epoch_s", times.epoch_s}};
}

Json to_json(const Remedy& remedy) {
  return {{"overrides", remedy.overrides},
          {"changes_bits", remedy.changes_bits},
          {"device_bytes", or_null(remedy.needs.device)},
          {"host_bytes", or_null(remedy.needs.host)},
          {"disk_bytes", or_null(remedy.needs.disk)},
          {"step_s", remedy.step_s}};
}

Json to_json(const PricedStrategy& priced) {
  Json json{{"name", priced.name}, {"has_strategy", priced.strategy.has_value()}};
  if (!priced.cost) return json;
  json.update({{"step_s", priced.cost->step_s},
               {"h2d_bytes_per_step", priced.cost->to_device},
               {"d2h_bytes_per_step", priced.cost->to_host},
               {"peer_bytes_per_step", priced.cost->between_devices}});
  return json;
}

Json to_json(const ComparedStrategy& compared) {
  const PricedStrategy& priced = compared;
  Json json = to_json(priced);
  if (compared.trained_s) json["trained_step_s"] = *compared.trained_s;
  return json;
}

Json to_json(const FoundStrategy& found, const SearchedModel& model) {
  Json trials = Json::array(), compared = Json::array();
  for (std::size_t trial : model.trials) trials.push_back(found.trials[trial]);
  for (const ComparedStrategy& each : model.compared) compared.push_back(to_json(each));
  return {{"trials", std::move(trials)},
          {"simulated", model.simulated},
          {"compared", std::move(compared)}};
}

Json to_json(const FoundStrategy& found, const ComparedRun& run) {
  Json chosen = Json::array();
  for (const TrialChoice& choice : run.chosen) {
    chosen.push_back({{"trial", found.trials[choice.trial]},
                      {"strategy", name_of(choice, found.models)},
                      {"first_track", choice.first_track}});
  }
  return {{"name", run.name}, {"run_s", or_null(run.run_s)}, {"chosen", std::move(chosen)}};
}

Json to_json(const FoundStrategy& found) {
  Json models = Json::array(), runs = Json::array(), pieces = Json::array();
  for (const SearchedModel& each : found.models) models.push_back(to_json(found, each));
  for (const ComparedRun& each : found.runs) runs.push_back(to_json(found, each));
  for (const SearchedPieces& each : found.pieces) {
    pieces.push_back({{"overrides", each.overrides},
                      {"device_bytes", each.least_budget},
                      {"best", to_json(each.best)}});
  }
  return {{"models", std::move(models)},
          {"runs", std::move(runs)},
          {"best", found.runs.empty() ? to_json(found.best_alone())
                                      : to_json(found, found.runs[found.best])},
          {"pieces", std::move(pieces)},
          {"by_devices", found.by_devices},
          {"overrides", found.overrides}};
}

}  // namespace

std::string to_json(const PlanReport& report) {
  const PlannedRun& run = report.run;
  const DiskUse& outputs = run.disks.front();
  Json trials = Json::array(), disks = Json::array();
  for (const PlannedRow& row : run.rows) trials.push_back(to_json(row, run.config()));
  for (const DiskUse& disk : run.disks) disks.push_back(to_json(disk));
  Json json{{"fits", run.fits()},
            {"estimated", report.estimated},
            {"memory", to_json(run.memory, run.machine)},
            {"disks", std::move(disks)},
            {"times", to_json(report.times)},
            {"checkpoint_bytes", outputs.checkpoints},
            {"weights_bytes", outputs.weights},
            {"disk_free_bytes", outputs.free}};
  if (report.largest) json["largest_model"] = report.largest->overrides;
  if (report.found) json["search"] = to_json(*report.found);
  if (!run.fits_memory()) json["reason"] = MachineTooSmall(run.memory, run.machine).what();
  json["remedies"] = Json::array();
  for (const Remedy& remedy : report.advice.remedies) json["remedies"].push_back(to_json(remedy));
  json.update(run_json(std::move(trials), report.result));
  return to_text(json);
}

}  // namespace spillway
