#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "spillway/events.h"

namespace spillway {

/// How fast each trial of a run has trained over the last ten seconds, from the times of events.
class RecentSpeed {
 public:
  void take(const SessionEvent& event);
  /// Up to its last step, over at least one step; nullopt before its first since it began.
  std::optional<double> steps_per_s(std::size_t trial) const;

 private:
  struct Moment {
    double time_s = 0;
    std::int64_t step = 0;
  };
  /// The last moment that is ten seconds old, and those after it, by trial.
  std::vector<std::deque<Moment>> moments_;
};

}  // namespace spillway
