#include "apps/run_json.h"

#include <utility>

namespace spillway {

Json run_json(Json trials, const RunResult& result) {
  Json devices = Json::array();
  for (const auto& device : result.devices) {
    devices.push_back({{"kind", device.kind},
                       {"budget_bytes", device.budget_bytes},
                       {"peak_bytes", device.peak_bytes},
                       {"busy_share", device.busy_share}});
  }
  return {{"trials", std::move(trials)},
          {"devices", std::move(devices)},
          {"host_peak_bytes", result.host_peak_bytes},
          {"h2d_bytes", result.h2d_bytes},
          {"d2h_bytes", result.d2h_bytes},
          {"copy_s", result.copy_s},
          {"copy_hidden_share", or_null(result.copy_hidden_share)},
          {"wall_s", result.wall_s}};
}

std::string to_text(const Json& json) {
  // Text that is no UTF-8 (a reason may quote a path) must not cost the whole document.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway
