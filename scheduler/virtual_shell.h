#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "scheduler/engine.h"

namespace spillway {

/// What actions take in a virtual run, in seconds.
struct VirtualCosts {
  double copy_bytes_per_s = 8e9;         ///< each direction of each device
  std::vector<double> link_bytes_per_s;  ///< by device, a slower rate there; empty or 0: none
  double copy_latency_s = 5e-6;
  double admission_s = 1e-3;
  int host_workers = 2;
};

/// Runs an engine under a virtual clock: a queue of completions by (time, sequence), the same
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
  struct Completion {
    double time_s;
    std::uint64_t sequence;
    Done done;
    bool operator>(const Completion& other) const {
      return std::tie(time_s, sequence) > std::tie(other.time_s, other.sequence);
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
  void complete(ActionId id, JobId job, double start_s, double duration_s, Bytes activations);

  Engine engine_;
  VirtualCosts costs_;
  double now_s_ = 0;
  std::uint64_t sequence_ = 0;
  std::priority_queue<Completion, std::vector<Completion>, std::greater<>> completions_;
  std::vector<double> compute_free_s_, to_device_free_s_, to_host_free_s_, worker_free_s_;
  std::map<ActionId, double> finish_s_;  // of actions in flight
  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;
  std::map<JobId, std::string> failures_;
};

}  // namespace spillway
