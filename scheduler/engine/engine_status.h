#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/engine/engine.h"
#include "spillway/trace.h"

namespace spillway {

/// What an engine does at one moment, for people to look at. Plain values.
struct EngineStatus {
  struct Job {
    std::int64_t step = 0;        ///< steps committed
    std::vector<DeviceId> lanes;  ///< the device that had each last in this step; not valid: none
    std::string waits_for;        ///< empty: it computes, or has ended
  };
  std::vector<Bytes> used;  ///< by device: planned ranges and activations
  std::vector<Job> jobs;
  /// Started and not done; the engine knows no times.
  std::map<ActionId, TraceSpan> under_way;
};

EngineStatus status_of(const Engine& engine);

}  // namespace spillway
