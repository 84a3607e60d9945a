#include <utility>

#include "apps/report/report.h"
#include "runs/log/run_json.h"

namespace spillway {
namespace {

Json to_json(const TrialLog& log) {
  const TrialResult& trial = log.result;
  Json json{
      {"name", trial.name},
      {"state", to_string(trial.state)},
      {"parameters", trial.parameters},
      {"num_shards", trial.num_shards},
      {"virtual_nodes", trial.virtual_nodes},
      {"lanes", trial.lanes},
      {"order", trial.order},
      {"steps", trial.steps},
      {"checkpoint_bytes", log.checkpoint_bytes},
      {"first_loss", or_null(trial.first_loss)},
      {"final_loss", or_null(trial.final_loss)},
      {"eval_loss", or_null(trial.eval_loss)},
      {"tokens_per_s", trial.tokens_per_s},
      {"weights_xxh3", trial.weights_xxh3.empty() ? Json(nullptr) : Json(trial.weights_xxh3)}};
  if (!trial.reason.empty()) json["reason"] = trial.reason;
  return json;
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

const char* to_string(RunState state) {
  switch (state) {
    case RunState::ended:
      return "ended";
    case RunState::running:
      return "running";
    case RunState::unfinished:
      return "unfinished";
  }
  return "?";
}

std::string json_report(const RunLog& run, RunState state) {
  Json trials = Json::array();
  for (const auto& trial : run.trials) trials.push_back(to_json(trial));
  Json json{{"state", to_string(state)}, {"trials", std::move(trials)}};
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
