#include "scheduler/simulation/controlled_shell.h"

#include <limits>
#include <utility>

namespace spillway {

ControlledShell::ControlledShell(EngineConfig config, VirtualCosts costs, LaneController controller,
                                 MakePlan make_plan)
    : shell_(std::move(config), std::move(costs)),
      controller_(std::move(controller)),
      make_plan_(std::move(make_plan)) {
  shell_.on_action = [this](const Action& action) {
    if (on_action) on_action(action);
    std::visit([this](const auto& a) { observe(a); }, action);
    decide_if_due();
  };
}

void ControlledShell::stop_early(SuccessiveHalving rule) { halving_ = std::move(rule); }

void ControlledShell::submit(const LaneDemand& demand, std::shared_ptr<const JobPlan> plan,
                             Bytes home_bytes) {
  demands_[demand.job] = demand;
  plans_[demand.job] = plan;
  const bool has_ended = plan == nullptr;
  shell_.submit(demand.job, std::move(plan), home_bytes);
  if (halving_ && !has_ended) shell_.hold(demand.job, halving_->hold_step(demand.job));
  if (controller_.shares()) shell_.pause(demand.job);
}

void ControlledShell::observe(const AdmitJob& admission) {
  controller_.arrive(demands_.at(admission.job), now_s());
  const bool at_rung =
      halving_ && halving_->hold_step(admission.job) == plans_.at(admission.job)->first_step;
  if (at_rung) wait_at_rung(admission.job);
}

void ControlledShell::observe(const StepCommitted& committed) {
  controller_.committed(committed, now_s());
  if (!halving_ || halving_->hold_step(committed.job) != committed.step) return;
  halving_->reach(committed.job, committed.step, std::numeric_limits<double>::quiet_NaN());
  wait_at_rung(committed.job);
}

void ControlledShell::observe(const JobEnded& ended) {
  controller_.end(ended.job);
  if (!halving_) return;
  halving_->leave(ended.job);
  decide_halving();
}

void ControlledShell::observe(const PlanChanged& changed) {
  if (changed.plan == plans_.at(changed.job)) controller_.resized(changed.job);
}

void ControlledShell::observe(const DeviceLeft& left) {
  controller_.forget_device(left.device);
  count_devices();
}

void ControlledShell::add_device(Bytes budget) {
  shell_.add_device(budget);
  count_devices();
  decide_if_due();
}

void ControlledShell::count_devices() {
  int usable = 0;
  for (std::size_t d = 0; d < shell_.engine().num_devices(); ++d) {
    usable += shell_.engine().device(DeviceId(d)).state == DeviceState::usable ? 1 : 0;
  }
  controller_.set_num_devices(usable);
}

/// Once the engine's call that is under way has ended.
void ControlledShell::decide_if_due() {
  if (!controller_.is_due() || std::exchange(deciding_, true)) return;
  shell_.call_at(now_s(), [this](VirtualShell&) {
    deciding_ = false;
    for (const LaneChange& change : controller_.decide()) carry_out(change);
  });
}

void ControlledShell::carry_out(const LaneChange& change) {
  if (on_change) on_change(change);
  if (change.lanes == 0) return shell_.pause(change.job);
  if (auto plan = make_plan_(change.job, change.lanes, change.avoid)) {
    plans_[change.job] = plan;
    shell_.resize(change.job, std::move(plan));
  } else {
    controller_.resized(change.job);  // it goes on as it is
  }
  if (change.before == 0) shell_.resume(change.job);
}

/// Others may have the devices that it had a share of.
void ControlledShell::wait_at_rung(JobId job) {
  if (controller_.shares()) {
    controller_.end(job);
    shell_.call_at(now_s(), [job](VirtualShell& shell) { shell.pause(job); });
  }
  decide_halving();
}

/// Once the engine's call that is under way has ended.
void ControlledShell::decide_halving() {
  shell_.call_at(now_s(), [this](VirtualShell&) {
    for (const auto& verdict : halving_->decide()) carry_out(verdict);
    decide_if_due();
  });
}

void ControlledShell::carry_out(const SuccessiveHalving::Verdict& verdict) {
  if (!verdict.goes_on) return shell_.stop(verdict.job);
  shell_.hold(verdict.job, halving_->hold_step(verdict.job));
  if (controller_.shares()) {
    LaneDemand& demand = demands_.at(verdict.job);
    demand.first_step = verdict.rung;
    controller_.arrive(demand, now_s());
  } else {
    controller_.redone(verdict.job);
  }
}

}  // namespace spillway
