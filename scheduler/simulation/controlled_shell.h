#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "scheduler/elastic/run_controller.h"
#include "scheduler/simulation/virtual_shell.h"

namespace spillway {

/// A virtual shell in which a controller decides the lanes of jobs: the simulation of a session.
class ControlledShell {
 public:
  /// Makes a job's plan for up to `lanes` lanes on devices other than `avoid`. Null: there is none,
  /// and the job keeps its plan.
  using MakePlan = std::function<std::shared_ptr<const JobPlan>(
      JobId job, int lanes, const std::vector<DeviceId>& avoid)>;
  /// With early stopping, future losses are unknown and count as the worst.
  ControlledShell(EngineConfig config, VirtualCosts costs, RunController controller,
                  MakePlan make_plan);

  /// `plan`: null if the job has ended before. `home_bytes`: enough for any plan that may follow.
  /// Jobs in order of their numbers, from 0.
  void submit(const LaneDemand& demand, std::shared_ptr<const JobPlan> plan, Bytes home_bytes);
  void add_device(Bytes budget);
  void run();
  /// Asks the controller again, without an event.
  void reconsider() { controller_.reconsider(); }
  VirtualShell& shell() { return shell_; }

  /// Called with every action, in order, before the controller sees it.
  std::function<void(const Action&)> on_action;
  /// Called with every command before it is carried out.
  std::function<void(const RunCommand&)> on_command;
  /// The delay of a resize in seconds; a later resize cancels it. Null: no delay.
  std::function<double(const ResizeJob&)> resize_delay_s;

 private:
  template <typename A>
  void observe(const A&) {}
  void observe(const AdmitJob& admission);
  void observe(const StepCommitted& committed) { controller_.on_committed(committed, now_s()); }
  void observe(const JobRested& rested);
  void observe(const StepRedone& redone) { controller_.on_redone(redone.job); }
  void observe(const PlanChanged& changed);
  void observe(const JobEnded& ended);
  void observe(const DeviceLeft& left);
  void count_devices();
  void carry_out_later();
  void carry_out();
  void carry_out(const PauseJob& pause) { shell_.pause(pause.job); }
  void carry_out(const ResumeJob& resume) { shell_.resume(resume.job); }
  void carry_out(const ResizeJob& resize);
  void bring_plan(const ResizeJob& resize);
  void carry_out(const HoldJob& hold) { shell_.hold(hold.job, hold.hold); }
  void carry_out(const SuspendJob& suspend) { shell_.suspend(suspend.job, suspend.suspended); }
  void carry_out(const TakeState&) {}
  void carry_out(const PassRung&) {}
  void carry_out(const StopAtRung& stop) { shell_.finish(stop.job); }
  double now_s() const { return shell_.now_s(); }

  VirtualShell shell_;
  RunController controller_;
  MakePlan make_plan_;
  RunCommands commands_;  ///< not applied yet
  bool calling_ = false;  ///< a call that applies it is scheduled
  std::map<JobId, LaneDemand> demands_;
  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;  // the latest of each
  std::map<JobId, int> num_resizes_;                       // decided
};

}  // namespace spillway
