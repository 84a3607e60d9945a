#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/engine/engine.h"
#include "spillway/trace.h"

namespace spillway {

/// The state of an engine for display. Plain values.
struct EngineStatus {
  struct Job {
    std::int64_t step = 0;  ///< steps committed
    std::vector<DeviceId>
        tracks;             ///< by track: its latest device in this step; the invalid id: none
    std::string waits_for;  ///< empty: it computes, or has ended
  };
  std::vector<Bytes> used;  ///< by device: planned ranges and activations
  Bytes host_used = 0;      ///< homes of admitted jobs
  std::vector<Job> jobs;
  /// Actions in flight, without times, which the engine does not know.
  std::map<ActionId, TraceSpan> under_way;
};

EngineStatus status_of(const Engine& engine);

}  // namespace spillway
