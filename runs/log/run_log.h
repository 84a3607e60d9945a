#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runs/config/sweep_config.h"
#include "runs/log/placed_layers.h"
#include "runs/log/run_json.h"
#include "spillway/results.h"

namespace spillway {

/// A checkpoint on disk.
struct SavedCheckpoint {
  std::uint64_t generation = 0;
  std::int64_t step = 0;
};

/// What the user has called for a trial last, until it is taken back.
enum class TrialCall : std::uint8_t {
  none,    ///< also: to resume it
  stop,    ///< it ends where it is
  pause,   ///< it waits
  extend,  ///< it trains on, also if early stopping has ended it
  set      ///< its values change; the calls above keep their effect
};
template <>
inline constexpr std::array kNames<TrialCall>{"resume", "stop", "pause", "extend", "set"};

struct TrialLog {
  std::vector<std::pair<std::string, std::string>> parameters;  ///< swept (key, value as text)
  std::int64_t max_steps = 0;
  std::int64_t tokens_per_step = 0;         ///< 0: unknown, in logs of earlier versions
  std::vector<std::int64_t> extended_from;  ///< TrainConfig::extended_from
  TrialCall call = TrialCall::none;
  bool extended_alone = false;           ///< by TrialCall::extend, not with all others
  std::optional<LrExtension> extension;  ///< then the schedule; nothing: as in the configuration
  std::vector<TrainChange> changes;      ///< of its values, as last noted
  std::optional<std::size_t> clone_of;   ///< the trial with whose state it began
  double compute_s_per_step = 0;         ///< as planned
  Bytes checkpoint_bytes = 0;            ///< planned peak on disk; 0: unknown
  std::vector<std::string> metrics;      ///< names; of logs of earlier versions none
  std::vector<PlacedLayers> placement;   ///< by its strategy; empty: it has none
  TrialResult result;                    ///< so far, without the lists of losses
  std::optional<SavedCheckpoint> saved;  ///< the latest
};

/// The state of a run according to its events, without the metrics of single steps (MetricsFiles).
/// All reports are made from this, during the run and after it.
struct RunLog {
  int format = 0;  ///< of the log
  std::string name;
  MetricConfig metric;
  std::vector<TrialLog> trials;
  std::optional<RunResult> planned;  ///< simulated totals
  std::optional<RunResult> actual;   ///< totals, once the run has ended
  std::uint64_t sequence = 0;        ///< of the latest event
  double begin_s = 0, time_s = 0;    ///< of the first and the latest event

  /// Applies the next event (runs/log/event_json.h). Throws Error if it is invalid or out of order.
  void apply(const Json& event);
};

}  // namespace spillway
