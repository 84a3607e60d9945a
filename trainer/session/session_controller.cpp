#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/config_check.h"
#include "spillway/error.h"
#include "trainer/config/config_fields.h"
#include "trainer/planning/rules.h"
#include "trainer/session/session_impl.h"

/// The controller decides how many lanes each trial has, and which trials go on at a rung.
namespace spillway {

/// Plans a submitted trial for the lanes that it asks for.
void Session::Impl::choose_lanes(SessionTrial& trial) const {
  TrainConfig& train = trial.config.train;
  const bool is_auto = train.data_parallel == kAutoDataParallel;
  trial.lanes.rules = make_rules(train);
  if (is_auto && trial.lanes.rules.empty() && !allocator)
    trial.lanes.rules = {make_heuristic("throughput")};
  trial.lanes.max = std::max(train.data_parallel, train.max_data_parallel);
  if (is_auto) {
    trial.planned = planner.plan(trial, 1);
    const int allowed = std::min(train.reduction_groups, trial.planned.usable_devices);
    if (train.max_data_parallel == 0) trial.lanes.max = allowed;
    train.data_parallel =
        useful_lanes(train.reduction_groups, std::min(allowed, trial.lanes.max)).back();
  }
  if (!is_auto || train.data_parallel > 1) trial.planned = planner.plan(trial, train.data_parallel);
  require_devices(trial.planned, train.data_parallel);
  trial.lanes.requested = train.data_parallel;
}

/// `length`: the length of a simulated run, which has shorter rungs too.
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

/// Tells the controller that the devices have changed.
void Session::Impl::note_devices() {
  if (!controller) return;
  controller->set_num_devices(static_cast<int>(devices.budgets().size()));
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!trials[t]->ended()) controller->limit(JobId(t), planner.lanes_possible(*trials[t]));
  }
  decide_if_due();
}

/// Posts one decision for all events until then.
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

void require_valid(const EarlyTerminate& early) {
  ConfigCheck check("sweep.early_terminate.");
  FieldCheck fields(check);
  visit_early_terminate(early, fields);
  check.finish();
}

std::optional<Rungs> Session::Impl::rungs() const {
  if (!config.early_terminate) return std::nullopt;
  return Rungs{config.early_terminate->min_iter, config.early_terminate->eta};
}

/// The losses at the rungs that a trial has reached.
static RungLosses rung_losses(const SessionTrial& trial) {
  RungLosses losses = trial.history.rung_losses();
  std::erase_if(losses,
                [&](const auto& rung) { return rung.first >= trial.config.train.max_steps; });
  return losses;
}

/// Of all known trials, in the order in which they were first submitted.
SuccessiveHalving Session::Impl::make_halving(const RunLength& length) const {
  SuccessiveHalving rule(length.steps(config.early_terminate->min_iter),
                         config.early_terminate->eta);
  const auto enter = [&](std::size_t t) SPILLWAY_REQUIRES(mutex) {
    const SessionTrial& entered = *trials[t];
    if (entered.ended()) return rule.enter_ended(entered.result.rung_losses);
    rule.enter(JobId(t), entered.first_step, length.steps(entered.config.train.max_steps));
    for (const auto& [rung, loss] : rung_losses(entered)) rule.reach(JobId(t), rung, loss);
  };
  if (!store.has_journal()) {
    for (std::size_t t = 0; t < trials.size(); ++t) enter(t);
    return rule;
  }
  for (const TrialResult& known : store.results()) {
    const auto found = std::ranges::find(trials, known.name,
                                         [](const auto& trial) { return trial->config.client_id; });
    if (found != trials.end()) {
      enter(static_cast<std::size_t>(found - trials.begin()));
    } else {
      rule.enter_ended(known.rung_losses);
    }
  }
  return rule;
}

/// Call it before anything is submitted to the shell.
void Session::Impl::begin_rungs() {
  for (std::size_t t = 0; config.early_terminate && t < trials.size(); ++t) {
    SessionTrial& trial = *trials[t];
    if (trial.ended()) continue;
    trial.result.rung_losses = rung_losses(trial);
    if (controller->waits(JobId(t)) == JobWait::rung) trial.result.rung_losses.pop_back();
  }
  shell->call([this] {
    const MutexLock lock(mutex);
    RunCommands commands;
    controller->begin(now_s(), commands);
    carry_out(commands);
  });
}

void Session::Impl::carry_out(const PassRung& pass) {
  SessionTrial& passing = trial(pass.job);
  passing.result.rung_losses.emplace_back(pass.verdict.rung, pass.verdict.loss);
  // The state that it started from is in a checkpoint, and its home may not be reserved yet.
  if (passing.result.steps > passing.first_step) save_if_due(pass.job);
  shell->hold(pass.job, pass.hold_step);
}

void Session::Impl::carry_out(const StopAtRung& stop) {
  SessionTrial& stopping = trial(stop.job);
  const SuccessiveHalving::Verdict& verdict = stop.verdict;
  stopping.result.rung_losses.emplace_back(verdict.rung, verdict.loss);
  if (stopping.lifecycle.is_live()) stopping.lifecycle.enter(TrialPhase::stopping_early);
  stopping.early_stop_reason =
      fmt::format("at step {} it was number {} of {} with a mean loss of {:f}; the best {} went on",
                  verdict.rung, verdict.rank, verdict.of, verdict.loss, verdict.going_on);
  shell->stop(stop.job);
}

void Session::Impl::require_room_at_rungs() const {
  if (!config.early_terminate) return;
  Bytes homes = 0;
  int num = 0;
  for (const auto& trial : trials) {
    if (trial->ended()) continue;
    homes += trial->planned.summary.home_bytes;
    ++num;
  }
  if (homes <= config.host_memory) return;
  throw DoesNotFit(
      fmt::format("the home of all {} trials, which early stopping lets wait for each other,", num),
      Tier::host, homes, config.host_memory);
}

void Session::check() const {
  const MutexLock lock(impl_->mutex);
  impl_->require_room_at_rungs();
}

}  // namespace spillway
