#pragma once

#include <cstdint>
#include <string>

#include "spillway/ids.h"
#include "spillway/results.h"

namespace spillway {

/// Something that happened, numbered from 1 without gaps.
struct SessionEvent {
  std::uint64_t sequence = 0;
  double time_s = 0;  ///< since the session's start
  JobId trial;        ///< not valid for events of a device
  enum class Kind : std::uint8_t {
    state,    ///< of a trial; one that waits for a device, or for its share, says why
    step,     ///< committed
    eval,     ///< finished
    resized,  ///< computes with `lanes` from the next step on; who decided it, where not devices
    redone,   ///< the step after `step` begins again, because a device was lost
    resumed,  ///< begins after `step` steps, from a checkpoint
    saved,    ///< the state after `step` steps is durable; with a reason: could not be written
    damaged,  ///< checkpoints, as the reason says; older ones are used, or none
    joined,   ///< a device
    left,     ///< a device that was removed, or shrank
    lost      ///< a device
  } kind = Kind::state;
  int device = -1;               ///< joined, left, lost: its number
  std::uint64_t generation = 0;  ///< saved, resumed: of the checkpoint
  int lanes = 0;                 ///< of the trial
  TrialState state = TrialState::waiting;
  std::int64_t step = 0;  ///< committed steps
  double loss = 0;
  double learning_rate = 0, gradient_norm = 0;
  double tokens_per_s = 0;
  std::string reason;        ///< why it failed, waits or was resized; why a device left
  std::string weights_xxh3;  ///< as TrialResult, once done
};

}  // namespace spillway
