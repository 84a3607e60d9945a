#pragma once

#include <array>
#include <deque>

#include "scheduler/engine/action.h"

namespace spillway {

/// Measures how long a device copies while it computes. Ops of a device do not overlap each other,
/// nor do its copies of one queue; completions of ops and copies may be reported in either
/// order. It keeps only intervals that actions in flight may still overlap.
class CopyOverlap {
 public:
  void copy_started(CopyQueue queue) { ++queues_[index(queue)].in_flight; }
  /// Seconds of the copy during ops that were reported before it.
  double copy_done(CopyQueue queue, double started_s, double finished_s);
  /// Seconds of copies that were reported before the op, during it.
  double op_done(double started_s, double finished_s);

 private:
  struct Interval {
    double begin_s = 0, end_s = 0;
    double shared_s(const Interval& other) const;
  };
  struct Queue {
    int in_flight = 0;
    double last_finished_s = 0;
  };
  static std::size_t index(CopyQueue queue) { return static_cast<std::size_t>(queue); }
  void forget_old_ops();

  std::array<Queue, kCopyQueues> queues_;
  std::deque<Interval> ops_, copies_;
};

}  // namespace spillway
