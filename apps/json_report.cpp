#include <nlohmann/json.hpp>
#include <optional>

#include "apps/report.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

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

Json to_json(const DeviceResult& device) {
  return {{"kind", device.kind},
          {"budget_bytes", device.budget_bytes},
          {"peak_bytes", device.peak_bytes},
          {"busy_share", device.busy_share}};
}

}  // namespace

std::string json_report(const RunResult& result) {
  Json trials = Json::array(), devices = Json::array();
  for (const auto& trial : result.trials) trials.push_back(to_json(trial));
  for (const auto& device : result.devices) devices.push_back(to_json(device));
  const Json json{{"trials", trials},
                  {"devices", devices},
                  {"host_peak_bytes", result.host_peak_bytes},
                  {"h2d_bytes", result.h2d_bytes},
                  {"d2h_bytes", result.d2h_bytes},
                  {"copy_s", result.copy_s},
                  {"copy_hidden_share", or_null(result.copy_hidden_share)},
                  {"wall_s", result.wall_s}};
  // Text that is no UTF-8 (a reason may quote a path) must not cost the whole document.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway
