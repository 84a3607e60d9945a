#include "scheduler/engine/engine_state.h"

namespace spillway {

EngineTables::EngineTables(const std::vector<Bytes>& budgets) : devices(budgets.size()) {
  for (std::size_t d = 0; d < devices.size(); ++d) devices[d].budget = budgets[d];
}

bool EngineTables::can_run(const JobTable& job, DeviceId id) const {
  const DeviceTable& device = of(id);
  return device.state == DeviceState::usable && job.plan->needed_budget <= device.budget &&
         !job.plan->avoids(id);
}

}  // namespace spillway
