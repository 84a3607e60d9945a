#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/results.h"
#include "spillway/trace.h"
#include "spillway/units.h"

namespace spillway {

/// A snapshot of what a session does. Outside of a run nothing is in flight.
struct SessionState {
  /// A device at this moment.
  struct Device {
    std::string kind;        ///< cpu | cuda
    std::string state;       ///< joining | present | leaving | gone
    Bytes budget_bytes = 0;  ///< most bytes that it may hold
    Bytes used_bytes = 0;    ///< planned ranges, and activations reserved for the running op
  };
  /// A trial at this moment.
  struct Trial {
    std::string name;                        ///< TrialConfig::name
    TrialState state = TrialState::waiting;  ///< at this moment
    std::int64_t step = 0;                   ///< committed steps
    std::int64_t max_steps = 0;              ///< all steps
    std::vector<int> lanes;  ///< devices that compute its step, by part of the batch; -1: none yet
    std::string waits_for;   ///< empty: the trial computes, or has ended
  };
  double time_s = 0;            ///< of the run's clock
  std::vector<Device> devices;  ///< in order of their numbers
  Bytes host_used_bytes = 0;    ///< training state of all trials that have it reserved
  std::vector<Trial> trials;    ///< in order of submission
  /// Ops, copies and host operations in flight, in the order in which their queues received them.
  /// `started_s` is that time.
  std::vector<TraceSpan> under_way;
};

}  // namespace spillway
