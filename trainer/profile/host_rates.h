#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// Calls `measure` for at least the time `least`, and at least five times, because the first calls
/// are slow: their memory is new. Two calls are enough if they take a second.
template <typename Measure>
void repeat_measurement(const Measure& measure, std::chrono::milliseconds least) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto is_enough = [&](int calls) {
    const auto passed = Clock::now() - begin;
    return passed >= least && (calls >= 5 || (calls >= 2 && passed >= std::chrono::seconds(1)));
  };
  for (int calls = 0; !is_enough(calls); ++calls) measure();
}

/// The least time for each of the parts that are measured together.
inline constexpr std::chrono::milliseconds kPerPart(30);

template <typename Work>
double seconds_of(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The expected value of the next measurement, from values in order: the mean without the first
/// quarter, when memory is new, and without values above three times the median, when the machine
/// does something else.
double expected(std::vector<double> values);

/// The expected seconds of a call of `work`.
template <typename Work>
double expected_seconds(const Work& work) {
  std::vector<double> seconds;
  repeat_measurement([&] { seconds.push_back(seconds_of(work)); }, kPerPart);
  return expected(seconds);
}

/// How busy the machine is: the share of its time in which a computing thread waits for a core.
/// Computes for 20 ms.
double measure_load();

/// A block of this size does not fit into any CPU cache, like the state of a model.
inline constexpr Bytes kBeyondCaches = 64_MiB;

/// Rates of one core of this machine.
struct HostRates {
  double copy_bytes_per_s = 0;    ///< from memory to memory
  double update_bytes_per_s = 0;  ///< AdamW: bytes of weights
  double reduce_bytes_per_s = 0;  ///< squared norm: bytes of gradient
  double matmul_flops_per_s = 0;  ///< fp32
};
/// Measures them on the calling thread in about a sixth of a second.
HostRates measure_host_rates();
/// Bytes of weights that AdamW updates per second with all cores, as in a run.
double measure_updates();

/// CPU contention: how many times longer work takes when `threads` threads do it at once. 1 if each
/// has a core of its own; more if cores share execution units and caches, or are fewer. Calls
/// `make_work` once per thread. Takes three quarters of a second.
double measure_contention(int threads, const std::function<std::function<void()>()>& make_work);
/// Work for measure_contention(): a small product.
std::function<void()> matrix_product();

/// Seconds by which an imitated link delays the smallest copy to a CPU device while `computing`
/// threads compute. The link sleeps, and a thread wakes late if few cores are free. 0: no link.
double measure_link_delay(Bytes link_bytes_per_s, int computing);

}  // namespace spillway
