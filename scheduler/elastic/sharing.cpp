#include "scheduler/elastic/sharing.h"

#include <algorithm>
#include <cassert>

namespace spillway {

Contender& Sharing::find(JobId job) {
  const auto found = std::ranges::find(jobs_, job, &Contender::job);
  assert(found != jobs_.end());
  return *found;
}

void Sharing::end(JobId job) {
  std::erase_if(jobs_, [&](const Contender& contender) { return contender.job == job; });
}

void Sharing::committed(JobId job, int lanes, double step_s, double steps_left) {
  Contender& contender = find(job);
  contender.speed.observe(lanes, 1 / step_s);
  contender.remaining_s = steps_left / contender.speed.speed(1);
}

std::vector<Sharing::Change> Sharing::decide() {
  const std::vector<int> lanes = allocator_->share(jobs_, num_devices_);
  std::vector<Change> changes;
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    Contender& job = jobs_[j];
    if (job.lanes == lanes[j]) continue;
    changes.push_back({job.job, job.lanes, lanes[j]});
    job.resizing = job.lanes > 0 && lanes[j] > 0;
    job.lanes = lanes[j];
  }
  return changes;
}

int Sharing::lanes_given() const {
  int sum = 0;
  for (const Contender& job : jobs_) sum += job.lanes;
  return sum;
}

}  // namespace spillway
