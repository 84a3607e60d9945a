#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/elastic/autoscaler.h"
#include "scheduler/elastic/sharing.h"
#include "scheduler/engine/action.h"

namespace spillway {

/// A job that needs lanes.
struct LaneDemand {
  JobId job;
  int lanes = 1;                ///< current number; if lanes are shared it starts with none
  int most_lanes = 1;           ///< upper limit
  std::vector<int> sizes{1};    ///< numbers of lanes that may help, ascending: see useful_lanes()
  int priority = 1;             ///< if lanes are shared
  std::int64_t first_step = 0;  ///< committed before
  std::int64_t max_steps = 1;   ///< committed at its end
  SpeedCurve speed{};           ///< steps/s as predicted or known before, if lanes are shared
  bool fixed = false;           ///< keeps `lanes`, whatever shares and rules say
  std::vector<std::shared_ptr<const Heuristic>> rules{};  ///< of its autoscaler; empty: it has none
};

/// The new lanes of a job.
struct LaneChange {
  JobId job;
  int before = 0, lanes = 0;      ///< before 0: it starts or continues; lanes 0: it waits
  std::vector<DeviceId> avoid{};  ///< devices that take no lane of it
  std::string reason{};           ///< "wfs", "throughput: tries 4 devices"
};

/// Decides how many lanes each job has: by an allocator that distributes devices, by the job's own
/// rules, or by both, in which case rules set how many lanes it asks for. Pure: a session and a
/// simulation report the same events, with their own clock, and apply the decisions of decide().
class LaneController {
 public:
  /// `allocator` null: nothing is shared, and jobs have lanes from the start.
  LaneController(std::shared_ptr<const Allocator> allocator, int num_devices);
  bool shares() const { return sharing_.has_value(); }

  /// The home of the job is reserved; it takes part until end(). Calls for any other job have no
  /// effect.
  void arrive(const LaneDemand& demand, double now_s);
  void committed(const StepCommitted& step, double now_s);
  /// The open step begins again: its duration is not measured.
  void redone(JobId job);
  /// The job runs on the lanes of the last decide().
  void resized(JobId job);
  void end(JobId job);
  /// From now on the job has `lanes` lanes, without shares or rules. The other jobs share the
  /// remaining devices, at least one.
  void fix(JobId job, int lanes);
  /// The devices have changed, and the job may have up to `most_lanes` lanes, at least one.
  void limit(JobId job, int most_lanes);
  /// If only avoided devices are left, jobs use them again.
  void set_num_devices(int num_devices);
  /// The device has left.
  void forget_device(DeviceId device);

  /// Makes is_due() true without an event.
  void reconsider() { due_ = true; }
  /// True if an event since the last decide() may have changed its answer.
  bool is_due() const { return due_; }
  /// The changes since the last call. They count as carried out, except that jobs that had lanes
  /// count as resizing until resized(). Empty while there are no devices.
  std::vector<LaneChange> decide();

 private:
  struct Job {
    LaneDemand demand;
    std::optional<Autoscaler> scaler;
    double arrived_s = 0, committed_s = 0;
    int asks = 1;             ///< lanes of its share, at most
    int given = 0;            ///< in the last decision
    int wanted = 0;           ///< in the next decision
    int runs_on = 0;          ///< lanes of the open step
    int last_step_on = 0;     ///< of the previous step
    bool resizing = false;    ///< a decision is not applied yet
    bool whole_step = false;  ///< the open step is measured from start to end
    std::vector<DeviceId> avoids{}, wants_to_avoid{};
    std::string reason{};
  };

  bool is_shared(const Job& job) const { return sharing_ && !job.demand.fixed; }
  void measure(Job& job, double step_s, double steps_left);
  void take(Job& job, const Advice& advice);
  void take_shares();
  void share_rest();
  LaneChange change(Job& job);

  std::optional<Sharing> sharing_;
  int num_devices_;
  std::map<JobId, Job> jobs_;  // that have arrived and not ended
  bool due_ = false;
};

}  // namespace spillway
