#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/results.h"
#include "spillway/trace.h"
#include "spillway/units.h"

namespace spillway {

/// What a session does at one moment, to be looked at. Without a run nothing is under way.
struct SessionState {
  struct Device {
    std::string kind, state;  ///< joining | present | leaving | gone
    Bytes budget_bytes = 0;
    Bytes used_bytes = 0;  ///< planned ranges, and activations reserved for what runs
  };
  struct Trial {
    std::string name;
    TrialState state = TrialState::waiting;
    std::int64_t step = 0, max_steps = 0;  ///< committed; of all
    std::vector<int> lanes;                ///< the device that had each last in this step; -1: none
    std::string waits_for;                 ///< empty: it computes, or has ended
  };
  double time_s = 0;  ///< of the run's clock
  std::vector<Device> devices;
  std::vector<Trial> trials;
  /// Ops, copies and work of the host, in the order in which they were handed to their queues;
  /// `started_s` is when.
  std::vector<TraceSpan> under_way;
};

}  // namespace spillway
