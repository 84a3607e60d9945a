#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/trace.h"
#include "spillway/units.h"

namespace spillway {

/// stopped: by stop(), before its end. stopped_early: others were better at a rung.
enum class TrialState : std::uint8_t { waiting, running, done, failed, stopped, stopped_early };
const char* to_string(TrialState state);
/// Whether a later session does not go on with the trial: it is done, failed or stopped early.
bool is_final(TrialState state);
/// The way back; nothing for a text that is no state.
std::optional<TrialState> trial_state(std::string_view text);

struct TrialResult {
  std::string name;
  TrialState state = TrialState::waiting;
  std::string reason;  ///< why it failed, or was stopped early
  std::int64_t parameters = 0;
  int num_shards = 0, virtual_nodes = 0, lanes = 0;
  std::string order;
  std::int64_t steps = 0;  ///< committed
  std::optional<double> first_loss, final_loss, eval_loss;
  double tokens_per_s = 0;
  std::string weights_xxh3;  ///< 32 hex digits; XXH3-128 of names, shapes and fp32 bytes in order
  Bytes training_state_bytes = 0;              ///< weights, gradients, moments
  std::int64_t dropped_steps = 0;              ///< the first ones, which the lists do not have
  std::vector<double> losses, gradient_norms;  ///< one a committed step
  std::vector<std::pair<std::int64_t, double>> eval_losses;  ///< (step, loss)
  /// Of early stopping: (rung, mean loss of the steps since the one before), where it is decided.
  std::vector<std::pair<std::int64_t, double>> rung_losses;
};

/// What ran where; the counters that exactness tests assert.
struct DeviceResult {
  std::string kind;
  Bytes budget_bytes = 0;
  Bytes peak_bytes = 0;             ///< predicted: the budget, where copies have to make room
  Bytes activation_peak_bytes = 0;  ///< the part of one op that no plan places
  double busy_share = 0;
  Bytes h2d_bytes = 0, d2h_bytes = 0;  ///< over its link
  std::uint64_t ops = 0, loads = 0, prefetches = 0;
  std::uint64_t evictions = 0;  ///< copies taken away before their last use there
};

struct RunResult {
  std::vector<TrialResult> trials;
  std::vector<DeviceResult> devices;
  Bytes host_budget_bytes = 0, host_peak_bytes = 0;
  Bytes h2d_bytes = 0, d2h_bytes = 0, h2d_weight_bytes = 0;
  double copy_s = 0;
  /// The part of copy_s during which the device of the copy computed; none without copies.
  std::optional<double> copy_hidden_share;
  double copy_wait_s = 0;  ///< that devices were idle because of a copy and nothing else
  double wall_s = 0;
  /// Of a simulation: the share of all steps that it took; below 1, the totals follow from them.
  double simulated_share = 1;
  std::vector<TraceSpan> trace;  ///< what ran when, in order of ends
};

}  // namespace spillway
