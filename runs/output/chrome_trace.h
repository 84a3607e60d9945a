#pragma once

#include <string>
#include <vector>

#include "runs/config/sweep.h"
#include "runs/output/memory_samples.h"
#include "spillway/trace.h"

namespace spillway {

/// A real and a simulated run side by side, for Perfetto and chrome://tracing: one process per run,
/// with one thread per device queue and several for the host's pool. `memory` becomes counters of
/// the real one.
/// Source: Google, "Trace Event Format".
std::string chrome_trace(const std::vector<Trial>& trials, const std::vector<TraceSpan>& real,
                         const std::vector<TraceSpan>& planned,
                         const std::vector<MemorySample>& memory = {});

}  // namespace spillway
