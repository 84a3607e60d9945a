#include "runs/log/run_json.h"

#include <utility>

namespace spillway {
namespace {

Json to_json(const DeviceResult& device) {
  return {{"kind", device.kind},
          {"budget_bytes", device.budget_bytes},
          {"peak_bytes", device.peak_bytes},
          {"activation_peak_bytes", device.activation_peak_bytes},
          {"busy_share", device.busy_share},
          {"h2d_bytes", device.h2d_bytes},
          {"d2h_bytes", device.d2h_bytes},
          {"ops", device.ops},
          {"loads", device.loads},
          {"prefetches", device.prefetches},
          {"evictions", device.evictions},
          {"kept_graphs", device.kept_graphs}};
}

DeviceResult device_of(const Json& json) {
  return {.kind = json.at("kind"),
          .budget_bytes = json.at("budget_bytes"),
          .peak_bytes = json.at("peak_bytes"),
          .activation_peak_bytes = json.at("activation_peak_bytes"),
          .busy_share = json.at("busy_share"),
          .h2d_bytes = json.at("h2d_bytes"),
          .d2h_bytes = json.at("d2h_bytes"),
          .ops = json.at("ops"),
          .loads = json.at("loads"),
          .prefetches = json.at("prefetches"),
          .evictions = json.at("evictions"),
          .kept_graphs = json.value("kept_graphs", std::uint64_t{0})};
}

}  // namespace

Json totals_json(const RunResult& result) {
  Json devices = Json::array();
  for (const auto& device : result.devices) devices.push_back(to_json(device));
  return {{"devices", std::move(devices)},
          {"host_budget_bytes", result.host_budget_bytes},
          {"host_peak_bytes", result.host_peak_bytes},
          {"h2d_bytes", result.h2d_bytes},
          {"h2d_weight_bytes", result.h2d_weight_bytes},
          {"h2d_shared_bytes", result.h2d_shared_bytes},
          {"d2h_bytes", result.d2h_bytes},
          {"copy_s", result.copy_s},
          {"copy_hidden_share", or_null(result.copy_hidden_share)},
          {"copy_wait_s", result.copy_wait_s},
          {"wall_s", result.wall_s}};
}

RunResult totals_of(const Json& json) {
  RunResult result{.host_budget_bytes = json.at("host_budget_bytes"),
                   .host_peak_bytes = json.at("host_peak_bytes"),
                   .h2d_bytes = json.at("h2d_bytes"),
                   .d2h_bytes = json.at("d2h_bytes"),
                   .h2d_weight_bytes = json.at("h2d_weight_bytes"),
                   .copy_s = json.at("copy_s"),
                   .wall_s = json.at("wall_s")};
  for (const auto& device : json.at("devices")) result.devices.push_back(device_of(device));
  const auto& share = json.at("copy_hidden_share");
  if (!share.is_null()) result.copy_hidden_share = share.get<double>();
  result.copy_wait_s = json.value("copy_wait_s", 0.0);  // logs of earlier versions lack these
  result.h2d_shared_bytes = json.value("h2d_shared_bytes", Bytes{0});
  return result;
}

Json run_json(Json trials, const RunResult& result) {
  Json json{{"trials", std::move(trials)}};
  json.update(totals_json(result));
  return json;
}

Json value_of(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_number() || value.is_boolean() ? value : Json(text);
}

// Text that is not UTF-8 (a reason may quote a path) must not make the whole document fail.
std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway
