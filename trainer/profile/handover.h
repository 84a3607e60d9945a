#pragma once

namespace spillway {

/// Seconds from the end of one thing until the next begins that only the engine could start: its
/// thread wakes, the engine decides, the thread of the queue wakes. Measured on a shell with one
/// CPU device and the smallest job, in about a tenth of a second.
double measure_handover();

}  // namespace spillway
