#include <algorithm>
#include <utility>
#include <vector>

#include "runs/log/run_json.h"
#include "runs/log/trial_names.h"
#include "runs/output/ranking.h"
#include "runs/output/run_documents.h"

namespace spillway {
namespace {

Json to_json(const RunLog& run, std::size_t number) {
  const TrialLog& log = run.trials[number];
  const TrialResult& trial = log.result;
  Json sweep = Json::object();
  for (const auto& [key, value] : log.parameters) sweep[key] = value_of(value);
  Json json{
      {"name", trial.name},
      {"short_name", short_name(run, number)},
      {"state", to_string(trial.state)},
      {"sweep", std::move(sweep)},
      {"metric", or_null(metric_of(run, number))},
      {"parameters", trial.parameters},
      {"num_shards", trial.num_shards},
      {"virtual_nodes", trial.virtual_nodes},
      {"data_parallel", trial.lanes},
      {"order", trial.order},
      {"steps", trial.steps},
      {"checkpoint_bytes", log.checkpoint_bytes},
      {"first_loss", or_null(trial.first_loss)},
      {"final_loss", or_null(trial.final_loss)},
      {"eval_loss", or_null(trial.eval_loss)},
      {"metrics", trial.metrics},
      {"tokens_per_s", trial.tokens_per_s},
      {"weights_xxh3", trial.weights_xxh3.empty() ? Json(nullptr) : Json(trial.weights_xxh3)}};
  if (!trial.reason.empty()) json["reason"] = trial.reason;
  if (log.clone_of) json["clone_of"] = run.trials[*log.clone_of].result.name;
  return json;
}

Json best_json(const RunLog& run, const std::filesystem::path& folder) {
  const auto best = best_trial(run);
  if (!best) return nullptr;
  const std::string& name = run.trials[*best].result.name;
  return {{"name", name},
          {"folder", trial_folder(folder, name).string()},
          {"value", or_null(metric_of(run, *best))}};
}

/// Numbers of the trials to list.
std::vector<std::size_t> listed_trials(const RunLog& run, std::size_t top) {
  auto trials = ranked_trials(run);
  if (top < trials.size()) {
    trials.resize(top);
  } else {
    std::ranges::sort(trials);
  }
  return trials;
}

/// The totals; all null if they are unknown.
Json totals_or_null(const std::optional<RunResult>& totals) {
  Json json = totals_json(totals.value_or(RunResult{}));
  if (!totals) {
    for (auto& value : json) value = nullptr;
  }
  return json;
}

}  // namespace

std::string json_report(const RunLog& run, const std::filesystem::path& folder, RunState state,
                        std::size_t top) {
  Json trials = Json::array();
  for (const std::size_t trial : listed_trials(run, top)) trials.push_back(to_json(run, trial));
  Json json{
      {"state", to_string(state)},
      {"metric", {{"name", to_string(run.metric.name)}, {"goal", to_string(run.metric.goal)}}},
      {"best", best_json(run, folder)},
      {"trials", std::move(trials)}};
  json.update(totals_or_null(run.actual));
  return to_text(json);
}

std::string plan_json(const RunLog& run) {
  const Json planned = totals_or_null(run.planned).flatten();
  const Json actual = totals_or_null(run.actual).flatten();
  Json both;  // by path, such as /devices/0/peak_bytes
  for (const auto& [path, value] : actual.items()) {
    both[path + "/planned"] = planned.contains(path) ? planned[path] : Json(nullptr);
    both[path + "/actual"] = value;
  }
  return to_text(both.unflatten());
}

}  // namespace spillway
