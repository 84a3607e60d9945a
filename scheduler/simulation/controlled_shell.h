#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "scheduler/elastic/lane_controller.h"
#include "scheduler/elastic/successive_halving.h"
#include "scheduler/simulation/virtual_shell.h"

namespace spillway {

/// A virtual shell whose jobs have the lanes that a controller gives them: what a session does in
/// real life.
class ControlledShell {
 public:
  /// Makes a job's plan for so many lanes, perhaps with fewer, on other devices than these. Null:
  /// there is none, and the job goes on as it is.
  using MakePlan = std::function<std::shared_ptr<const JobPlan>(
      JobId job, int lanes, const std::vector<DeviceId>& avoid)>;
  ControlledShell(EngineConfig config, VirtualCosts costs, LaneController controller,
                  MakePlan make_plan);

  /// Jobs wait at rungs for each other, and some end there. The rule has been entered all of them,
  /// and knows what is known of them; losses to come are not. Before submit().
  void stop_early(SuccessiveHalving rule);
  /// `home_bytes`: enough for any plan that may follow. Jobs in order of their numbers, from 0.
  void submit(const LaneDemand& demand, std::shared_ptr<const JobPlan> plan, Bytes home_bytes);
  void add_device(Bytes budget);
  void run() { shell_.run(); }
  VirtualShell& shell() { return shell_; }

  /// Called with every action, in order, before anything comes of it.
  std::function<void(const Action&)> on_action;
  /// Called with every decision before it is carried out.
  std::function<void(const LaneChange&)> on_change;

 private:
  template <typename A>
  void observe(const A&) {}
  void observe(const AdmitJob& admission);
  void observe(const StepCommitted& committed);
  void observe(const StepRedone& redone) { controller_.redone(redone.job); }
  void observe(const PlanChanged& changed);
  void observe(const JobEnded& ended);
  void observe(const DeviceLeft& left);
  void count_devices();
  void decide_if_due();
  void carry_out(const LaneChange& change);
  void wait_at_rung(JobId job);
  void decide_halving();
  void carry_out(const SuccessiveHalving::Verdict& verdict);
  double now_s() const { return shell_.now_s(); }

  VirtualShell shell_;
  LaneController controller_;
  MakePlan make_plan_;
  std::optional<SuccessiveHalving> halving_;
  bool deciding_ = false;  ///< a call is under way
  std::map<JobId, LaneDemand> demands_;
  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;  // the latest of each
};

}  // namespace spillway
