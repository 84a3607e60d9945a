#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/engine/engine.h"
#include "scheduler/simulation/copy_queues.h"
#include "scheduler/simulation/host_workers.h"
#include "scheduler/simulation/virtual_costs.h"

namespace spillway {

/// Runs an engine under a virtual clock, with completions ordered by (time, action), ordered queues
/// as a device has, and costs from the programs. No threads; the same input gives the same run. All
/// functions may be called between two events or from call_at().
class VirtualShell {
 public:
  VirtualShell(EngineConfig config, VirtualCosts costs);

  /// `home_bytes`: host memory to reserve, if a later plan needs more than this one.
  void submit(JobId job, std::shared_ptr<const JobPlan> plan, Bytes home_bytes = 0,
              const JobStart& start = {});
  void stop(JobId job);
  void pause(JobId job);
  void resume(JobId job);
  void hold(JobId job, Hold hold);
  void suspend(JobId job, bool suspended);
  void finish(JobId job);
  void resize(JobId job, std::shared_ptr<const JobPlan> plan);
  void interrupt(JobId job);
  void go_on(JobId job, std::shared_ptr<const JobPlan> plan, bool one_step);
  /// The job's exchanges in flight end with Done::lost, now.
  void lose_exchanges(JobId job);
  DeviceId add_device(Bytes budget);
  void remove_device(DeviceId device);
  /// Actions in flight there end with Done::lost after VirtualCosts::cancel_s.
  void lose_device(DeviceId device);
  /// Nothing completes on the device any more. It is lost `deadline_s` later.
  void hang_device(DeviceId device, double deadline_s);
  /// Limits the rate of later copies of the device; 0: no limit.
  void set_link(DeviceId device, double bytes_per_s);
  /// The next op or host op that starts for `job` fails with this reason. Copies fail only with
  /// their device.
  void fail_next(JobId job, const std::string& reason) { failures_[job] = reason; }
  /// Calls `call` at that time, before completions of the same time.
  void call_at(double time_s, std::function<void(VirtualShell&)> call);

  /// Handles one completion or call. False when neither is left.
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
  struct Flight {
    Done done;
    DeviceId device;        ///< the invalid id: on the host
    JobId exchanging = {};  ///< of an exchange: its job
  };
  /// Completions by time, then by start order.
  using Ends = std::set<std::pair<double, ActionId>>;
  /// Calls a member of the engine and carries out its actions.
  template <typename Member, typename... Arguments>
  auto tell(Member member, Arguments&&... arguments);
  void carry_out(std::vector<Action>& actions);
  bool make_call();
  void perform(const StartOp& op);
  void perform(const DropGraph& drop);
  void perform(const StartCopy& copy);
  void perform(const StartHostOp& op);
  void perform(const AdmitJob& admission);
  void perform(const StepCommitted&) {}
  void perform(const JobRested&) {}
  void perform(const JobInterrupted&) {}
  void perform(const StepRedone&) {}
  void perform(const PlanChanged&) {}
  void perform(const DeviceLeft&) {}
  void perform(const ReleaseJob& release);
  void perform(const JobEnded&) {}
  void exchange(const StartHostOp& op, const HostOpSpec& spec);
  double slowdown(DeviceId device) const { return costs_.slowdown_of(device.index()); }
  double busy_threads(double time_s, DeviceId computing) const;
  const Program& program(JobId job, std::size_t step_kind) const;
  template <typename IsLost>
  void lose_flights(const IsLost& is_lost, double end_s);
  void complete(ActionId id, JobId job, DeviceId device, double start_s, double duration_s,
                Bytes activations, bool may_fail = true);

  struct Compute {
    double free_s = 0;
    bool hangs = false;
  };

  Engine engine_;
  VirtualCosts costs_;
  double now_s_ = 0;
  Ends ends_;
  std::multimap<double, std::function<void(VirtualShell&)>> calls_;
  boost::unordered_flat_map<ActionId, Flight> in_flight_;
  std::vector<Compute> computes_;  // by device
  CopyQueues copies_;
  HostWorkers host_workers_;
  double network_free_s_ = 0;
  std::map<JobId, std::string> failures_;
};

}  // namespace spillway
