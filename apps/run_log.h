#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/run_json.h"
#include "apps/sweep_config.h"
#include "trainer/session.h"

namespace spillway {

/// What is known of a committed step; an evaluation belongs to the step whose weights it saw.
struct StepMetrics {
  std::int64_t step = 0;
  std::optional<double> loss, learning_rate, gradient_norm, tokens_per_s, time_s, eval_loss;
};

struct TrialLog {
  std::vector<std::pair<std::string, std::string>> parameters;  ///< swept (key, value as text)
  std::int64_t max_steps = 0;
  double compute_s_per_step = 0;     ///< as planned
  Bytes checkpoint_bytes = 0;        ///< on disk, the most at once, as planned; 0: not said
  TrialResult result;                ///< up to now, without the lists of losses
  std::vector<StepMetrics> metrics;  ///< by step
};

/// A run as its events tell it. All that is shown or written of a run is made from this, while it
/// runs, when it has ended, and when it is read back.
struct RunLog {
  std::string name;
  MetricConfig metric;
  std::vector<TrialLog> trials;
  std::optional<RunResult> planned;  ///< totals; none: not simulated
  std::optional<RunResult> actual;   ///< totals, once the run has ended
  std::uint64_t sequence = 0;        ///< of the latest event
  double begin_s = 0, time_s = 0;    ///< of the first and the latest event

  /// Takes the next event, as apps/event_json.h makes them. Throws Error for one that is none, or
  /// is out of order; then this is useless.
  void apply(const Json& event);
};

}  // namespace spillway
