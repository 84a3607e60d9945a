#include <algorithm>
#include <utility>

#include "spillway/error.h"
#include "trainer/planning/rules.h"
#include "trainer/session/session_impl.h"

namespace spillway {

/// Of a trial that comes: plans it for the lanes that it asks for.
void Session::Impl::choose_lanes(SessionTrial& trial) const {
  TrainConfig& train = trial.config.train;
  const bool is_auto = train.lanes == kAutoLanes;
  trial.rules = make_rules(train);
  if (is_auto && trial.rules.empty() && !allocator) trial.rules = {make_heuristic("throughput")};
  trial.most_lanes = std::max(train.lanes, train.max_lanes);
  if (is_auto) {
    trial.planned = planner.plan(trial, 1);
    const int allowed = std::min(train.reduction_groups, trial.planned.usable_devices);
    if (train.max_lanes == 0) trial.most_lanes = allowed;
    train.lanes = useful_lanes(train.reduction_groups, std::min(allowed, trial.most_lanes)).back();
  }
  if (!is_auto || train.lanes > 1) trial.planned = planner.plan(trial, train.lanes);
  require_devices(trial.planned, train.lanes);
  trial.lanes_asked = train.lanes;
}

/// `length`: of a simulated run, whose rungs are shortened likewise.
RunController Session::Impl::make_controller(const RunLength& length) const {
  LaneController lanes(allocator, static_cast<int>(devices.budgets().size()));
  if (!config.early_terminate) return RunController(std::move(lanes));
  return RunController(std::move(lanes), make_halving(length));
}

LaneDemand Session::Impl::demand(JobId id) const {
  const SessionTrial& trial = *trials[id.index()];
  const TrainConfig& train = trial.config.train;
  return {.job = id,
          .lanes = trial.lanes_asked,
          .most_lanes = planner.lanes_possible(trial),
          .groups = train.reduction_groups,
          .priority = train.priority,
          .first_step = trial.result.steps,
          .max_steps = train.max_steps,
          .lane_step_s = trial.planned.summary.compute_s_per_step,
          .fixed = trial.lanes_fixed || (!allocator && trial.rules.empty()),
          .rules = trial.rules};
}

/// The devices have changed.
void Session::Impl::note_devices() {
  if (!controller) return;
  controller->set_num_devices(static_cast<int>(devices.budgets().size()));
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!trials[t]->ended()) controller->limit(JobId(t), planner.lanes_possible(*trials[t]));
  }
  decide_if_due();
}

/// Once for all events until then.
void Session::Impl::decide_if_due() {
  if (!controller->is_due() || std::exchange(deciding, true)) return;
  shell->call([this] {
    const std::lock_guard lock(mutex);
    deciding = false;
    RunCommands commands;
    controller->decide(commands);
    carry_out(commands);
  });
}

void Session::Impl::carry_out(const RunCommands& commands) {
  for (const RunCommand& command : commands) {
    std::visit([this](const auto& c) { carry_out(c); }, command);
  }
  for (const RunCommand& command : commands) show_state(job_of(command));
  decide_if_due();
}

void Session::Impl::carry_out(const ResizeJob& resize) {
  SessionTrial& trial = *trials[resize.job.index()];
  trial.lanes_asked = resize.lanes;
  trial.lanes_reason = resize.reason;
  trial.avoided = resize.avoid;
  if (auto plan = planner.best_plan(trial, resize.lanes, resize.avoid)) {
    change_plan(resize.job, std::move(plan));
  } else {
    controller->on_resized(resize.job);  // it goes on as it is
  }
}

}  // namespace spillway
