#include "scheduler/simulation/step_cost.h"

#include <variant>
#include <vector>

#include "spillway/ids.h"

namespace spillway {

std::optional<StepCost> step_cost(std::shared_ptr<const JobPlan> plan, const EngineConfig& engine,
                                  const VirtualCosts& costs) {
  VirtualShell shell(engine, costs);
  std::vector<double> commits;
  StepCost sum;
  const auto count = [&](const StartCopy& copy) {
    const Bytes bytes = plan->layout.buffers[at(copy.buffer)].bytes;
    if (copy.peer.valid()) {
      sum.between_devices += bytes;
    } else {
      (copy.direction == CopyDirection::to_device ? sum.to_device : sum.to_host) += bytes;
    }
  };
  shell.on_action = [&](const Action& action) {
    if (std::holds_alternative<StepCommitted>(action)) commits.push_back(shell.now_s());
    const auto* copy = std::get_if<StartCopy>(&action);
    if (copy != nullptr && !commits.empty() && commits.size() < kPricedSteps) count(*copy);
  };
  shell.submit(JobId(0), plan);
  shell.run();
  if (commits.size() < kPricedSteps) return std::nullopt;
  constexpr int kCounted = kPricedSteps - 1;
  return StepCost{.step_s = (commits.back() - commits.front()) / kCounted,
                  .to_device = sum.to_device / kCounted,
                  .to_host = sum.to_host / kCounted,
                  .between_devices = sum.between_devices / kCounted};
}

}  // namespace spillway
