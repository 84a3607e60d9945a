#pragma once

namespace spillway {

/// Seconds from the end of one operation to the start of the next that the engine dispatches: the
/// engine's thread wakes, the engine decides, the queue's thread wakes. Measures a shell with one
/// CPU device and the smallest job, in about a tenth of a second.
double measure_dispatch_latency();

}  // namespace spillway
