#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "scheduler/engine.h"

namespace spillway {

/// What actions take in a virtual run, in seconds.
struct VirtualCosts {
  double copy_bytes_per_s = 8e9;         ///< each direction of each device
  std::vector<double> link_bytes_per_s;  ///< by device, a slower rate there; empty or 0: none
  double copy_latency_s = 5e-6;
  double admission_s = 1e-3;
  std::vector<double> slowdown;  ///< by device, compute takes so many times longer; empty: 1
  double crowding = 1;           ///< an op takes so many times longer while all devices compute
  int host_workers = 2;
};

/// Runs an engine under a virtual clock: a queue of completions by (time, action), the same
/// ordered queues as a device has, costs from the programs. No threads; the same input gives the
/// same run.
class VirtualShell {
 public:
  VirtualShell(EngineConfig config, VirtualCosts costs);

  void submit(JobId job, std::shared_ptr<const JobPlan> plan);
  void stop(JobId job);
  /// The next op or copy that starts for `job` fails with this reason.
  void fail_next(JobId job, const std::string& reason) { failures_[job] = reason; }
  /// Handles one completion. False when nothing is in flight.
  bool advance();
  void run() {
    while (advance()) {
    }
  }

  const Engine& engine() const { return engine_; }
  double now_s() const { return now_s_; }
  /// Called with every action, in order, before it is carried out.
  std::function<void(const Action&)> on_action;
  /// Called with every completion before the engine sees it.
  std::function<void(const Done&)> on_completion;

 private:
  struct End {
    double time_s;
    ActionId id;  // among ends at the same time, what was started first
    bool operator>(const End& other) const {
      return std::tie(time_s, id) > std::tie(other.time_s, other.id);
    }
  };
  void carry_out(std::vector<Action>& actions);
  void perform(const StartOp& op);
  void perform(const StartCopy& copy);
  void perform(const StartHostOp& op);
  void perform(const AdmitJob& admission);
  void perform(const StepCommitted&) {}
  void perform(const JobEnded&) {}
  double copy_rate(DeviceId device) const;
  double slowdown(DeviceId device) const;
  double crowding_at(double time_s, DeviceId device) const;
  void complete(ActionId id, JobId job, double start_s, double duration_s, Bytes activations);

  Engine engine_;
  VirtualCosts costs_;
  double now_s_ = 0;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  boost::unordered_flat_map<ActionId, Done> in_flight_;
  std::vector<double> compute_free_s_, to_device_free_s_, to_host_free_s_, worker_free_s_;
  std::vector<std::shared_ptr<const JobPlan>> plans_;  // by job
  std::map<JobId, std::string> failures_;
};

}  // namespace spillway
