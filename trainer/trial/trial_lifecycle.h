#pragma once

#include <cstdint>
#include <optional>

#include "spillway/results.h"

namespace spillway {

/// What a trial does or waits for, in more detail than the TrialState that users see.
enum class TrialPhase : std::uint8_t {
  submitted,  ///< waits until a run has reserved its host memory
  undecided,  ///< the next decision gives it lanes or refuses them
  running,
  paused,          ///< other trials have the devices
  at_rung,         ///< waits for other trials to reach its rung
  at_until,        ///< waits until it is extended
  suspended,       ///< waits until the user resumes it
  stranded,        ///< no present device can run it
  stopping_early,  ///< other trials were better at the rung; its job is ending
  releasing,       ///< its job is ending; no new checkpoint may begin
  done,
  failed,
  stopped,
  stopped_early
};
const char* to_string(TrialPhase phase);
/// True if a trial in phase `from` may enter `to`.
bool is_legal(TrialPhase from, TrialPhase to);
/// The state that users see in this phase; nothing: the previous one.
std::optional<TrialState> shown_state(TrialPhase phase);

/// The phases of one trial: a state machine that refuses illegal transitions.
class TrialLifecycle {
 public:
  TrialPhase phase() const { return phase_; }
  /// The trial has not ended, and its job is not ending.
  bool is_live() const { return phase_ < TrialPhase::stopping_early; }
  bool ended() const { return phase_ >= TrialPhase::done; }

  /// Throws std::logic_error if the transition is illegal.
  void enter(TrialPhase next);
  /// The trial is submitted, but an earlier session has ended it in this state.
  void recall(TrialState ended);

 private:
  TrialPhase phase_ = TrialPhase::submitted;
};

}  // namespace spillway
