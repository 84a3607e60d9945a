#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace spillway {

/// Median over `kRepeats` calls, in seconds.
template <std::size_t kRepeats = 3, typename Work>
double median_seconds(const Work& work) {
  std::array<double, kRepeats> seconds{};
  for (double& s : seconds) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::sort(seconds);
  return seconds[kRepeats / 2];
}

/// What one core of this machine does a second.
struct HostRates {
  double copy_bytes_per_s = 0;    ///< from memory to memory
  double update_bytes_per_s = 0;  ///< AdamW: bytes of weights
  double reduce_bytes_per_s = 0;  ///< squared norm: bytes of gradient
  double matmul_flops_per_s = 0;  ///< fp32
};
/// Measures them on the calling thread: about a tenth of a second.
HostRates measure_host_rates();

}  // namespace spillway
