#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "core/units.h"

namespace spillway {

/// Calls `measure` at least three times, and for 30 ms: the first ones are slow, their memory is
/// new.
template <typename Measure>
void repeat_measurement(const Measure& measure) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(30);
  for (int calls = 0; calls < 3 || Clock::now() < end; ++calls) measure();
}

inline double median(std::vector<double>& values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Median over repeated calls of `work`, in seconds.
template <typename Work>
double median_seconds(const Work& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  repeat_measurement([&] {
    const auto begin = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  });
  return median(seconds);
}

/// What one core of this machine does a second.
struct HostRates {
  double copy_bytes_per_s = 0;    ///< from memory to memory
  double update_bytes_per_s = 0;  ///< AdamW: bytes of weights
  double reduce_bytes_per_s = 0;  ///< squared norm: bytes of gradient
  double matmul_flops_per_s = 0;  ///< fp32
};
/// Measures them on the calling thread: about a sixth of a second.
HostRates measure_host_rates();

/// How many times longer a matrix product takes where `threads` compute at once: 1 where each has a
/// core of its own, more where cores share execution units or are fewer. Takes a quarter of a
/// second.
double measure_crowding(int threads);

/// Seconds from the start of the smallest copy to a CPU device until who waits for it goes on. A
/// link is imitated by sleeping, which takes longer than asked for.
double measure_copy_latency(Bytes link_bytes_per_s);

}  // namespace spillway
