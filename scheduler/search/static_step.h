#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "scheduler/search/stage_facts.h"
#include "scheduler/simulation/virtual_shell.h"

namespace spillway {

/// The estimate of a step.
struct StepEstimate {
  /// Seconds from one commit to the next. If memory is short, with the time to copy once what has
  /// no room. The engine usually takes longer.
  double step_s = 0;
  bool fits = false;  ///< the devices have room for all that would be there at once
};

/// Estimates the steps of strategies for one model: of a training step that follows another, alone
/// on the devices. Instead of running the engine it passes once over the units of the step: each
/// queue of a device takes its work in the order of the program. That is how the engine runs it
/// where everything fits; otherwise the engine takes longer. Much faster than step_cost(), and
/// close to it. Source: the full simulation of Jia et al., "Beyond Data and Model Parallelism for
/// Deep Neural Networks", 2019, section 5.
class StepEstimator {
 public:
  /// `shape`: without other hosts. `profile` outlives it, and `model`.
  StepEstimator(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                const EngineConfig& engine, const VirtualCosts& costs);
  /// Nothing if too few devices can run its units. Stages are divided to fit; track t gets the t-th
  /// device that fits. The pass ends once the step must take longer than `most_s`. Then `step_s` is
  /// above `most_s` and at most the true estimate, and `fits` is false.
  std::optional<StepEstimate> estimate(Strategy strategy,
                                       double most_s = std::numeric_limits<double>::infinity());

  /// What the host does before the first unit: the same for all strategies.
  struct HostBegin {
    double loaded_s = 0;            ///< when the batch is there
    std::vector<double> updated_s;  ///< by weights buffer: when its update is done
    HostWorkers workers{0};
  };

 private:
  std::optional<std::vector<std::size_t>> devices_for(Strategy& strategy, int slots);

  StageTable table_;
  const EngineConfig engine_;
  const VirtualCosts costs_;
  const HostBegin begin_;
};

}  // namespace spillway
