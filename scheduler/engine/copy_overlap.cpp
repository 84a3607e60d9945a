#include "scheduler/engine/copy_overlap.h"

#include <algorithm>
#include <limits>

namespace spillway {

double CopyOverlap::Interval::shared_s(const Interval& other) const {
  return std::max(0.0, std::min(end_s, other.end_s) - std::max(begin_s, other.begin_s));
}

double CopyOverlap::copy_done(CopyQueue queue, double started_s, double finished_s) {
  Queue& of_copy = queues_[index(queue)];
  --of_copy.in_flight;
  of_copy.last_finished_s = finished_s;
  const Interval copy{started_s, finished_s};
  double hidden_s = 0;
  for (const Interval& op : ops_) hidden_s += copy.shared_s(op);
  copies_.push_back(copy);
  forget_old_ops();
  return hidden_s;
}

double CopyOverlap::op_done(double started_s, double finished_s) {
  const Interval op{started_s, finished_s};
  double hidden_s = 0;
  for (const Interval& copy : copies_) hidden_s += op.shared_s(copy);
  // The next op begins after this one.
  std::erase_if(copies_, [&](const Interval& copy) { return copy.end_s <= finished_s; });
  ops_.push_back(op);
  forget_old_ops();
  return hidden_s;
}

/// A copy in flight begins after the previous one; a copy that is started later begins after
/// everything reported so far.
void CopyOverlap::forget_old_ops() {
  double next_copy_s = std::numeric_limits<double>::infinity();
  for (const Queue& queue : queues_) {
    if (queue.in_flight > 0) next_copy_s = std::min(next_copy_s, queue.last_finished_s);
  }
  while (!ops_.empty() && ops_.front().end_s <= next_copy_s) ops_.pop_front();
}

}  // namespace spillway
