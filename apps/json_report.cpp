#include <utility>

#include "apps/report.h"
#include "apps/run_json.h"

namespace spillway {
namespace {

Json to_json(const TrialResult& trial) {
  Json json{
      {"name", trial.name},
      {"state", to_string(trial.state)},
      {"parameters", trial.parameters},
      {"num_shards", trial.num_shards},
      {"virtual_nodes", trial.virtual_nodes},
      {"lanes", trial.lanes},
      {"order", trial.order},
      {"steps", trial.steps},
      {"first_loss", or_null(trial.first_loss)},
      {"final_loss", or_null(trial.final_loss)},
      {"eval_loss", or_null(trial.eval_loss)},
      {"tokens_per_s", trial.tokens_per_s},
      {"weights_xxh3", trial.weights_xxh3.empty() ? Json(nullptr) : Json(trial.weights_xxh3)}};
  if (!trial.reason.empty()) json["reason"] = trial.reason;
  return json;
}

}  // namespace

std::string json_report(const RunResult& result) {
  Json trials = Json::array();
  for (const auto& trial : result.trials) trials.push_back(to_json(trial));
  return to_text(run_json(std::move(trials), result));
}

}  // namespace spillway
