#include "scheduler/engine/engine_state.h"

#include <utility>

namespace spillway {

static std::vector<Bytes> planned_parts(const EngineConfig& config) {
  std::vector<Bytes> parts;
  for (const Bytes budget : config.device_budgets) parts.push_back(config.split.planned(budget));
  return parts;
}

EngineTables::EngineTables(EngineConfig engine_config)
    : config(std::move(engine_config)),
      devices(config.device_budgets.size()),
      memory(planned_parts(config)) {
  for (std::size_t d = 0; d < devices.size(); ++d) devices[d].budget = config.device_budgets[d];
}

bool EngineTables::can_run(const JobTable& job, DeviceId id) const {
  const DeviceTable& device = of(id);
  return device.state == DeviceState::usable && job.plan->needed_budget <= device.budget &&
         !job.plan->avoids(id);
}

}  // namespace spillway
