#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/choices.h"
#include "spillway/metric.h"
#include "spillway/trace.h"
#include "spillway/train_config.h"
#include "spillway/units.h"

namespace spillway {

/// The state of a trial.
enum class TrialState : std::uint8_t {
  waiting,       ///< for a device or for host memory
  paused,        ///< by Session::pause(), or at TrialConfig::until
  running,       ///< it computes
  done,          ///< trained to its end
  failed,        ///< TrialResult::reason says why
  stopped,       ///< by Session::stop(), before its end
  stopped_early  ///< other trials were better at a rung
};
template <>
inline constexpr std::array kNames<TrialState>{"waiting", "paused",  "running",      "done",
                                               "failed",  "stopped", "stopped early"};  ///< names

/// True if the trial is neither waiting nor paused nor running.
constexpr bool has_ended(TrialState state) { return state > TrialState::running; }
/// True if a later session does not continue the trial: it is done, failed or stopped early.
constexpr bool is_final(TrialState state) {
  return has_ended(state) && state != TrialState::stopped;
}

/// What became of one trial.
struct TrialResult {
  std::string name;                        ///< TrialConfig::name
  TrialState state = TrialState::waiting;  ///< at this moment, or at the end
  std::string reason;                      ///< why it failed or was stopped early
  std::int64_t parameters = 0;             ///< number of weights
  int num_shards = 0;                      ///< pieces into which the model is cut
  int virtual_nodes = 0;                   ///< per step
  int lanes = 0;                           ///< devices that compute a step together
  std::string order;                       ///< shard_major | vn_major | strategy
  std::int64_t steps = 0;                  ///< committed
  std::optional<double> first_loss;        ///< of the first step
  std::optional<double> final_loss;        ///< of the last committed step
  std::optional<double> eval_loss;         ///< of the last evaluation
  Metrics metrics;                         ///< of the last evaluation, by name
  double tokens_per_s = 0;                 ///< over the run
  /// 32 hex digits: XXH3-128 of names, shapes and fp32 bytes in order. If hosts shard the state of
  /// a trial in bf16, only host 0 has it.
  std::string weights_xxh3;
  Bytes training_state_bytes = 0;      ///< weights, gradients, moments
  std::int64_t dropped_steps = 0;      ///< the first steps, which the lists no longer contain
  std::vector<double> losses;          ///< one per committed step
  std::vector<double> gradient_norms;  ///< one per committed step
  std::vector<std::pair<std::int64_t, double>> eval_losses;  ///< (step, loss)
  /// (step, metrics) as in `eval_losses`; empty if the model has no metrics.
  std::vector<std::pair<std::int64_t, Metrics>> eval_metrics;
  /// With early stopping: (rung, value of EarlyTerminate::metric) of each decided rung.
  std::vector<std::pair<std::int64_t, double>> rung_losses;
  std::vector<TrainChange> changes;  ///< of its values, like TrainConfig::changes
};

/// What Session::evaluate() gives.
struct Evaluation {
  double loss = 0;  ///< mean over all samples
  Metrics metrics;  ///< by name
};

/// What one device did. The exactness tests assert these counters.
struct DeviceResult {
  std::string kind;                 ///< cpu | cuda
  Bytes budget_bytes = 0;           ///< most bytes that it may hold
  Bytes peak_bytes = 0;             ///< most bytes held; a tight plan predicts the budget
  Bytes activation_peak_bytes = 0;  ///< most bytes of activations of one op
  double busy_share = 0;            ///< of the run's time, 0 to 1
  Bytes h2d_bytes = 0;              ///< from the host, over its link
  Bytes d2h_bytes = 0;              ///< to the host, over its link
  std::uint64_t ops = 0;            ///< computed
  std::uint64_t loads = 0;          ///< copies to it
  std::uint64_t prefetches = 0;     ///< loads before their unit began
  std::uint64_t evictions = 0;      ///< copies removed before their last use there
  std::uint64_t kept_graphs = 0;    ///< backward ops that recomputed nothing (GraphChoice::keep)
};

/// What a run did, or would do.
struct RunResult {
  std::vector<TrialResult> trials;    ///< in order of submission
  std::vector<DeviceResult> devices;  ///< in order of their numbers
  Bytes host_budget_bytes = 0;        ///< SessionConfig::host_memory
  Bytes host_peak_bytes = 0;          ///< most bytes of training state in host memory
  Bytes h2d_bytes = 0;                ///< to all devices
  Bytes d2h_bytes = 0;                ///< from all devices
  Bytes h2d_weight_bytes = 0;         ///< the weights in h2d_bytes
  Bytes h2d_shared_bytes = 0;         ///< the weights that trials share, in h2d_weight_bytes
  double copy_s = 0;                  ///< total time of all copies
  /// The part of copy_s during which the device of the copy computed. Nothing without copies.
  std::optional<double> copy_hidden_share;
  double copy_wait_s = 0;  ///< time in which devices were idle only because of a copy
  double wall_s = 0;       ///< of the run
  /// Of a simulation: the share of all steps that it simulated. Below 1 the totals are scaled.
  double simulated_share = 1;
  std::vector<TraceSpan> trace;  ///< what ran when, in order of ends
};

}  // namespace spillway
