#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runs/log/run_json.h"
#include "runs/log/run_log.h"
#include "spillway/train_config.h"

namespace spillway {

/// A call of the user for one trial of a run.
struct CallForTrial {
  TrialCall call = TrialCall::none;
  std::string trial;
  std::optional<std::int64_t> steps;       ///< of TrialCall::extend: its new length
  std::optional<LrExtension> extension{};  ///< then its schedule; nothing: the present one
};

/// Throws ConfigError if the run has no trial of this name, long or short.
std::size_t number_of(const std::string& trial, const RunLog& run);

/// The event of the log that records the call. Throws ConfigError if the run has no such trial, or
/// the call means nothing in its state.
Json event_of(const CallForTrial& call, const RunLog& run);

/// For `spillway set` and `clone`: throw ConfigError unless the trial has not ended, or has ended
/// by itself.
void require_settable(std::size_t number, const RunLog& run);
void require_cloneable(std::size_t number, const RunLog& run);
/// The same for a request to a run that nobody trains. Returns the trial if it has ended.
std::optional<std::size_t> ended_trial_of(const Json& request, const RunLog& run);

/// The call as a request to the process that trains the run, see runs/folder/requests.h.
Json request_of(const CallForTrial& call);
/// Throws Error for a request of another kind.
CallForTrial call_of(const Json& request);

/// What the user may give for a trial that has begun.
struct TrialValues {
  TrainValues train;
  std::optional<std::int64_t> max_steps;
  std::optional<LrExtension> extension;
};

bool is_among(std::span<const char* const> keys, std::string_view key);

/// From "train.learning_rate=1e-4" and the like. Throws ConfigError for a key that is not in
/// `keys`, ConfigErrors for values that are not valid.
TrialValues trial_values(const std::vector<std::string>& texts, std::span<const char* const> keys);

/// Of `extend` for a run that goes on, `set` and `clone`.
inline constexpr const char* kExtendKeys[] = {"train.lr_scheduler_extend"};
inline constexpr const char* kSetKeys[] = {"train.learning_rate", "train.weight_decay",
                                           "train.max_grad_norm"};
inline constexpr const char* kCloneKeys[] = {"train.learning_rate", "train.weight_decay",
                                             "train.max_grad_norm", "train.max_steps",
                                             "train.lr_scheduler_extend"};

}  // namespace spillway
