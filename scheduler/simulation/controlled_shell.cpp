#include "scheduler/simulation/controlled_shell.h"

#include <limits>
#include <utility>

namespace spillway {

ControlledShell::ControlledShell(EngineConfig config, VirtualCosts costs, RunController controller,
                                 MakePlan make_plan)
    : shell_(std::move(config), std::move(costs)),
      controller_(std::move(controller)),
      make_plan_(std::move(make_plan)) {
  shell_.on_action = [this](const Action& action) {
    if (on_action) on_action(action);
    std::visit([this](const auto& a) { observe(a); }, action);
    carry_out_later();
  };
}

void ControlledShell::submit(const LaneDemand& demand, std::shared_ptr<const JobPlan> plan,
                             Bytes home_bytes) {
  demands_[demand.job] = demand;
  plans_[demand.job] = plan;
  const JobStart start = plan ? controller_.start(demand.job) : JobStart();  // null: it has ended
  shell_.submit(demand.job, std::move(plan), home_bytes, start);
}

void ControlledShell::run() {
  controller_.begin(now_s(), commands_);
  carry_out_later();
  shell_.run();
}

void ControlledShell::observe(const AdmitJob& admission) {
  controller_.on_admitted(demands_.at(admission.job), now_s());
}

void ControlledShell::observe(const JobRested& rested) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  controller_.on_rested(rested, kUnknown, now_s(), commands_);
}

void ControlledShell::observe(const JobEnded& ended) {
  controller_.on_ended(ended.job, now_s(), commands_);
}

void ControlledShell::observe(const PlanChanged& changed) {
  if (changed.plan == plans_.at(changed.job)) controller_.on_resized(changed.job);
}

void ControlledShell::observe(const DeviceLeft& left) {
  controller_.on_device_left(left.device);
  count_devices();
}

void ControlledShell::add_device(Bytes budget) {
  shell_.add_device(budget);
  count_devices();
  carry_out_later();
}

void ControlledShell::count_devices() {
  int usable = 0;
  for (std::size_t d = 0; d < shell_.engine().num_devices(); ++d) {
    usable += shell_.engine().device(DeviceId(d)).state == DeviceState::usable ? 1 : 0;
  }
  controller_.set_num_devices(usable);
}

/// Once the engine's call that is under way has ended.
void ControlledShell::carry_out_later() {
  if (commands_.empty() && !controller_.is_due()) return;
  if (std::exchange(calling_, true)) return;
  shell_.call_at(now_s(), [this](VirtualShell&) {
    calling_ = false;
    if (controller_.is_due()) controller_.decide(commands_);
    carry_out();
  });
}

void ControlledShell::carry_out() {
  for (const RunCommand& command : std::exchange(commands_, {})) {
    if (on_command) on_command(command);
    std::visit([this](const auto& c) { carry_out(c); }, command);
  }
}

void ControlledShell::carry_out(const ResizeJob& resize) {
  const int number = ++num_resizes_[resize.job];
  const double delay_s = resize_delay_s ? resize_delay_s(resize) : 0;
  if (delay_s <= 0) return bring_plan(resize);
  shell_.call_at(now_s() + delay_s, [this, resize, number](VirtualShell&) {
    const bool is_latest = num_resizes_.at(resize.job) == number;
    if (is_latest && controller_.is_admitted(resize.job)) bring_plan(resize);
  });
}

void ControlledShell::bring_plan(const ResizeJob& resize) {
  if (auto plan = make_plan_(resize.job, resize.lanes, resize.avoid)) {
    plans_[resize.job] = plan;
    shell_.resize(resize.job, std::move(plan));
  } else {
    controller_.on_resized(resize.job);  // it goes on as it is
    carry_out_later();
  }
}

}  // namespace spillway
