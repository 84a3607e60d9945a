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
  trial.lanes.rules = make_rules(train);
  if (is_auto && trial.lanes.rules.empty() && !allocator)
    trial.lanes.rules = {make_heuristic("throughput")};
  trial.lanes.max = std::max(train.lanes, train.max_lanes);
  if (is_auto) {
    trial.planned = planner.plan(trial, 1);
    const int allowed = std::min(train.reduction_groups, trial.planned.usable_devices);
    if (train.max_lanes == 0) trial.lanes.max = allowed;
    train.lanes = useful_lanes(train.reduction_groups, std::min(allowed, trial.lanes.max)).back();
  }
  if (!is_auto || train.lanes > 1) trial.planned = planner.plan(trial, train.lanes);
  require_devices(trial.planned, train.lanes);
  trial.lanes.requested = train.lanes;
}

/// `length`: of a simulated run, whose rungs are shortened likewise.
RunController Session::Impl::make_controller(const RunLength& length) const {
  LaneController lanes(allocator, static_cast<int>(devices.budgets().size()));
  if (!config.early_terminate) return RunController(std::move(lanes));
  return RunController(std::move(lanes), make_halving(length));
}

LaneDemand Session::Impl::demand(JobId id) const {
  const SessionTrial& wants = trial(id);
  const TrainConfig& train = wants.config.train;
  return {.job = id,
          .lanes = wants.lanes.requested,
          .most_lanes = planner.lanes_possible(wants),
          .groups = train.reduction_groups,
          .priority = train.priority,
          .first_step = wants.result.steps,
          .max_steps = train.max_steps,
          .lane_step_s = wants.planned.summary.compute_s_per_step,
          .fixed = wants.lanes.set_by_user || (!allocator && wants.lanes.rules.empty()),
          .rules = wants.lanes.rules};
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
    const MutexLock lock(mutex);
    deciding = false;
    RunCommands commands;
    controller->decide(commands);
    carry_out(commands);
  });
}

void Session::Impl::carry_out(const RunCommands& commands) {
  for (const RunCommand& command : commands) {
    std::visit([this](const auto& c) SPILLWAY_REQUIRES(mutex) { carry_out(c); }, command);
  }
  for (const RunCommand& command : commands) update_phase(job_of(command));
  decide_if_due();
}

void Session::Impl::carry_out(const ResizeJob& resize) {
  SessionTrial& resized = trial(resize.job);
  resized.lanes.requested = resize.lanes;
  resized.lanes.reason = resize.reason;
  resized.lanes.avoided = resize.avoid;
  if (auto plan = planner.best_plan(resized, resize.lanes, resize.avoid)) {
    change_plan(resize.job, std::move(plan));
  } else {
    controller->on_resized(resize.job);  // it goes on as it is
  }
}

}  // namespace spillway
