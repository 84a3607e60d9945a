#pragma once

#include <vector>

#include "spillway/session_state.h"

namespace spillway {

/// How many bytes a session used at a moment.
struct MemorySample {
  double time_s = 0;  ///< on the run's clock
  Bytes host_bytes = 0;
  std::vector<Bytes> device_bytes;  ///< by device
};

/// The memory of a session over time: samples at equal distances, of which there are never many. In
/// a long run every other sample is dropped, and the distance doubles.
class MemorySamples {
 public:
  /// Whether a sample is to be taken at this time, in seconds on any clock.
  bool is_due(double now_s) const { return now_s >= due_s_; }
  /// Takes a sample at this time.
  void take(double now_s, const SessionState& state);
  const std::vector<MemorySample>& samples() const { return samples_; }

 private:
  double due_s_ = 0, distance_s_ = 0.1;
  std::vector<MemorySample> samples_;
};

}  // namespace spillway
