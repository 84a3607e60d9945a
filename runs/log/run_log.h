#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runs/config/sweep_config.h"
#include "runs/log/run_json.h"
#include "spillway/results.h"

namespace spillway {

/// A checkpoint that was written.
struct SavedCheckpoint {
  std::uint64_t generation = 0;
  std::int64_t step = 0;
};

struct TrialLog {
  std::vector<std::pair<std::string, std::string>> parameters;  ///< swept (key, value as text)
  std::int64_t max_steps = 0;
  double compute_s_per_step = 0;         ///< as planned
  Bytes checkpoint_bytes = 0;            ///< on disk, the most at once, as planned; 0: not said
  TrialResult result;                    ///< up to now, without the lists of losses
  std::optional<SavedCheckpoint> saved;  ///< the latest
};

/// A run as its events tell it, without what single steps said: that is in MetricsFiles. All else
/// that is shown or written of a run is made from this, while it runs, when it has ended, and when
/// it is read back.
struct RunLog {
  int format = 0;  ///< of the log
  std::string name;
  MetricConfig metric;
  std::vector<TrialLog> trials;
  std::optional<RunResult> planned;  ///< totals; none: not simulated
  std::optional<RunResult> actual;   ///< totals, once the run has ended
  std::uint64_t sequence = 0;        ///< of the latest event
  double begin_s = 0, time_s = 0;    ///< of the first and the latest event

  /// Takes the next event, as runs/log/event_json.h makes them. Throws Error for one that is none,
  /// or is out of order.
  void apply(const Json& event);
};

}  // namespace spillway
