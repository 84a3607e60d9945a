#pragma once

#include <algorithm>
#include <vector>

#include "spillway/ids.h"

namespace spillway {

/// The host's threads in a virtual run. Host ops begin in the order of their submission, and the
/// threads share the grains of an op (HostOpSpec::grains).
class HostWorkers {
 public:
  struct Span {
    double begin_s = 0, end_s = 0;
  };

  explicit HostWorkers(int number) : free_s_(at(number)) {}

  /// Adds an op that takes `cost_s` on one thread, ready at `ready_s`.
  Span run(double ready_s, double cost_s, int grains) {
    std::ranges::sort(free_s_);
    const double begin_s = std::max(ready_s, free_s_[0]);
    double end_s = begin_s, total_s = cost_s;  // total_s / used: when the threads in use end
    std::size_t used = 0;
    for (; used < std::min(at(grains), free_s_.size()); ++used) {
      const double free_s = std::max(ready_s, free_s_[used]);
      if (used > 0 && free_s >= end_s) break;
      total_s += free_s;
      end_s = total_s / static_cast<double>(used + 1);
    }
    std::fill_n(free_s_.begin(), used, end_s);
    return {begin_s, end_s};
  }

  int num_busy(double time_s) const {
    return static_cast<int>(
        std::ranges::count_if(free_s_, [&](double free_s) { return free_s > time_s; }));
  }

 private:
  std::vector<double> free_s_;  ///< by thread: the time from which it is free
};

}  // namespace spillway
