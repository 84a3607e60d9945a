#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// Calls `measure` at least five times, and for 30 ms for each of its parts: the first ones are
/// slow, their memory is new.
template <typename Measure>
void repeat_measurement(const Measure& measure, int parts = 1) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + parts * std::chrono::milliseconds(30);
  for (int calls = 0; calls < 5 || Clock::now() < end; ++calls) measure();
}

template <typename Work>
double seconds_of(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// What one more is expected to take, of values in the order in which they were measured: the mean
/// of all but the first quarter, while memory was new, and those above three times the median, when
/// the machine did something else.
double expected(std::vector<double> values);

/// Of one more call of `work`, after several.
template <typename Work>
double expected_seconds(const Work& work) {
  std::vector<double> seconds;
  repeat_measurement([&] { seconds.push_back(seconds_of(work)); });
  return expected(seconds);
}

/// How busy the machine is: the share of its time for which a thread that computes waits for a
/// core. 0: it never does. Computes for 20 ms.
double measure_load();

/// Memory of so many bytes is in no cache: the state of models is not.
inline constexpr Bytes kBeyondCaches = 64_MiB;

/// What one core of this machine does a second.
struct HostRates {
  double copy_bytes_per_s = 0;    ///< from memory to memory
  double update_bytes_per_s = 0;  ///< AdamW: bytes of weights
  double reduce_bytes_per_s = 0;  ///< squared norm: bytes of gradient
  double matmul_flops_per_s = 0;  ///< fp32
};
/// Measures them on the calling thread: about a sixth of a second.
HostRates measure_host_rates();
/// Bytes of weights that AdamW takes a second with all cores, as in a run.
double measure_updates();

/// How many times longer work takes where `threads` do it at once: 1 where each has a core of its
/// own, more where cores share execution units and caches or are fewer. `make_work` is called for
/// each thread. Takes three quarters of a second.
double measure_crowding(int threads, const std::function<std::function<void()>()>& make_work);
/// Work for it: a small product.
std::function<void()> matrix_product();

/// Seconds that the smallest copy to a CPU device takes longer over an imitated link, while so many
/// threads compute: that is done by sleeping, and who sleeps is woken late, the later the fewer
/// cores are free. 0: no link.
double measure_link_delay(Bytes link_bytes_per_s, int computing);

}  // namespace spillway
