#pragma once

#include <string>
#include <vector>

#include "runs/config/sweep.h"
#include "spillway/trace.h"

namespace spillway {

/// A real and a simulated run side by side, as Perfetto and chrome://tracing read them: a process
/// for each, in it a thread for each queue of each device, and several for the host's pool.
/// Source: Google, "Trace Event Format".
std::string chrome_trace(const std::vector<Trial>& trials, const std::vector<TraceSpan>& real,
                         const std::vector<TraceSpan>& planned);

}  // namespace spillway
