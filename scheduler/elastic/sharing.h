#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/elastic/allocator.h"

namespace spillway {

/// Tracks the lanes of all jobs that have arrived and not ended, and asks an allocator for changes.
/// Pure: its owner reports arrivals, ends, commits and devices, and applies the changes.
class Sharing {
 public:
  struct Change {
    JobId job;
    int before = 0, lanes = 0;  ///< before 0: it starts; lanes 0: it waits again
  };

  Sharing(std::shared_ptr<const Allocator> allocator, int num_devices)
      : allocator_(std::move(allocator)), num_devices_(num_devices) {}

  /// `job.lanes` is 0.
  void arrive(Contender job) { jobs_.push_back(std::move(job)); }
  void end(JobId job);
  /// From now on the job asks for `most_lanes` lanes, at least one.
  void ask(JobId job, int most_lanes) { find(job).most_lanes = most_lanes; }
  void set_num_devices(int num_devices) { num_devices_ = num_devices; }
  /// The job runs on the lanes of the last decide().
  void resized(JobId job) { find(job).resizing = false; }
  /// A step on `lanes` lanes took `step_s` seconds; `steps_left` steps remain.
  void committed(JobId job, int lanes, double step_s, double steps_left);

  /// The changes since the last call. They count as carried out; jobs that had lanes count as
  /// resizing until resized().
  std::vector<Change> decide();
  std::span<const Contender> jobs() const { return jobs_; }
  std::string_view allocator() const { return allocator_->name(); }
  /// Lanes given to all jobs.
  int lanes_given() const;

 private:
  Contender& find(JobId job);

  std::shared_ptr<const Allocator> allocator_;
  int num_devices_;
  std::vector<Contender> jobs_;  // in order of arrival
};

}  // namespace spillway
