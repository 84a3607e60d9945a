#pragma once

#include <cstdint>
#include <string>

#include "spillway/ids.h"
#include "spillway/results.h"

namespace spillway {

/// Something that happened in a session.
struct SessionEvent {
  std::uint64_t sequence = 0;  ///< from 1 without gaps
  double time_s = 0;           ///< since the session's start
  JobId trial;                 ///< not valid for events of a device
  /// What happened.
  enum class Kind : std::uint8_t {
    state,    ///< a trial's state changed; if it waits for a device or a share, `reason` says so
    step,     ///< a step was committed
    eval,     ///< an evaluation finished
    resized,  ///< `lanes` devices compute the trial from the next step on; `reason` says who
              ///< decided it
    redone,   ///< the step after `step` starts again, because a device or a host was lost
    resumed,  ///< the trial starts after `step` steps, from a checkpoint; `reason`: whose clone
    saved,    ///< the state after `step` is durable, or, with a reason, could not be written
    set,      ///< the trial has new values after `step` steps; `reason` lists them
    damaged,  ///< checkpoints are damaged, as `reason` says; older ones are used, or none
    joined,   ///< a device joined
    left,     ///< a device was removed, or shrank
    lost      ///< a device was lost, or a host, without which the others go on
  } kind = Kind::state;                    ///< what happened
  int device = -1;                         ///< joined, left, lost: its number
  int host = -1;                           ///< lost: its number, if it is a host
  std::uint64_t generation = 0;            ///< saved, resumed: number of the checkpoint
  int lanes = 0;                           ///< devices that compute a step of the trial
  TrialState state = TrialState::waiting;  ///< of the trial
  std::int64_t step = 0;                   ///< committed steps
  double loss = 0;                         ///< step, eval: mean loss
  Metrics metrics;                         ///< eval: by name
  double learning_rate = 0;                ///< step: of this step; set: of the next
  double gradient_norm = 0;                ///< step: before clipping
  double tokens_per_s = 0;                 ///< of the trial
  std::string reason;        ///< why it failed, waits or was resized; why a device left or a
                             ///< host is lost
  std::string weights_xxh3;  ///< like TrialResult::weights_xxh3, once done
  /// Otherwise it is about a device or a host.
  bool is_of_trial() const { return device < 0 && host < 0; }
};

}  // namespace spillway
