#include <algorithm>
#include <utility>

#include "trainer/compute/optimizer.h"
#include "trainer/session/session_impl.h"

namespace spillway {

void Session::Impl::on_started(JobId id) {
  const std::lock_guard lock(mutex);
  controller->on_admitted(demand(id), now_s());
  decide_if_due();
  show_state(id);
}

void Session::Impl::on_committed(const StepCommitted& committed) {
  const std::lock_guard lock(mutex);
  const JobId id = committed.job;
  refresh(id, committed.step);
  add_event(id, SessionEvent::Kind::step);
  const bool at_rung = committed.step == controller->hold_step(id);
  const double mean_loss = at_rung ? trials[id.index()]->history.rung_losses().back().second : 0;
  RunCommands commands;
  controller->on_committed(committed, mean_loss, now_s(), commands);
  if (!at_rung) save_if_due(id);
  carry_out(commands);
  if (at_rung) show_state(id);
}

void Session::Impl::on_redone(JobId id, std::int64_t) {
  const std::lock_guard lock(mutex);
  add_event(id, SessionEvent::Kind::redone);
  controller->on_redone(id);
}

void Session::Impl::on_resized(JobId id, const JobPlan& plan) {
  const std::lock_guard lock(mutex);
  SessionTrial& trial = *trials[id.index()];
  TrialResult& result = trial.result;
  result.lanes = static_cast<int>(plan.lanes.size());
  result.num_shards = static_cast<int>(plan.shards.size());
  result.order = plan.vn_major ? "vn_major" : "shard_major";
  const bool is_latest = &plan == trial.plan.get();  // else a later one is on its way
  SessionEvent event = event_of(id, SessionEvent::Kind::resized);
  if (is_latest) event.reason = std::exchange(trial.lanes_reason, {});
  events.add(std::move(event));
  if (!is_latest) return;
  controller->on_resized(id);
  decide_if_due();
}

void Session::Impl::on_ended(JobId id, JobEnd end, const std::string& reason) {
  const std::lock_guard lock(mutex);
  const SessionTrial& trial = *trials[id.index()];
  refresh(id, trial.result.steps);
  if (end == JobEnd::stopped && !trial.stopped_because.empty()) {
    set_state(id, TrialState::stopped_early, trial.stopped_because);
  } else {
    set_state(id,
              end == JobEnd::done     ? TrialState::done
              : end == JobEnd::failed ? TrialState::failed
                                      : TrialState::stopped,
              reason);
  }
  RunCommands commands;
  controller->on_ended(id, now_s(), commands);
  carry_out(commands);
}

void Session::Impl::set_state(JobId id, TrialState state, const std::string& reason) {
  TrialResult& result = trials[id.index()]->result;
  result.state = state;
  result.reason = reason;
  add_event(id, SessionEvent::Kind::state);
  note_state(*trials[id.index()]);
}

/// Of a trial that is not about to end, where it has changed.
void Session::Impl::show_state(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  TrialResult& result = trial.result;
  if (trial.ended() || !trial.stopped_because.empty()) return;
  const bool started = controller && controller->is_admitted(id);
  const JobWait wait = controller ? controller->waits(id) : JobWait::nothing;
  if (wait == JobWait::decision && !trial.stranded) return;
  std::string waits;
  if (trial.stranded) {
    waits = "no device is left that can run it; add one of at least " +
            format_bytes(trial.planned.summary.smallest_budget_bytes);
  } else if (wait == JobWait::rung) {
    waits = "other trials have still to come to step " + std::to_string(result.steps) +
            ", where early stopping compares them";
  } else if (wait == JobWait::devices) {
    waits = "others have the devices; scheduling.sharing is " + config.sharing;
  }
  const bool runs = started && waits.empty();
  const TrialState state = runs ? TrialState::running : TrialState::waiting;
  if (state == result.state && waits == result.reason) return;
  if (runs && result.steps == trial.first_step) trial.started_s = now_s();
  set_state(id, state, waits);
}

void Session::Impl::sum_up(SessionTrial& trial) {
  trial.result.first_loss = trial.history.first_loss();
  trial.result.final_loss = trial.history.last_loss();
  trial.result.eval_loss = trial.history.last_eval_loss();
}

/// Takes over what the trial has reached.
void Session::Impl::refresh(JobId id, std::int64_t step) {
  SessionTrial& trial = *trials[id.index()];
  TrialResult& result = trial.result;
  const TrainingJob::Progress news = trial.job->take_progress();
  if (step > result.steps) trial.last_s = now_s();
  result.steps = step;
  // Of a step that was committed as the trial ended, nobody heard.
  for (std::size_t i = 0; i < news.losses.size() && trial.history.num_steps() < step; ++i) {
    trial.history.add_step(news.losses[i], news.gradient_norms[i]);
  }
  for (const auto& [eval_step, loss] : news.eval_losses) trial.history.add_eval(eval_step, loss);
  result.weights_xxh3 = news.weights_xxh3;
  sum_up(trial);
  const double elapsed = trial.last_s - trial.started_s;
  if (step > trial.first_step && elapsed > 0) {
    const auto steps = static_cast<double>(step - trial.first_step);
    result.tokens_per_s = news.weight_per_step * steps / elapsed;
  }
  for (const auto& [eval_step, loss] : news.eval_losses) {
    SessionEvent event = event_of(id, SessionEvent::Kind::eval);
    event.step = eval_step;
    event.loss = loss;
    events.add(std::move(event));
  }
}

SessionEvent Session::Impl::event_of(JobId id, SessionEvent::Kind kind) const {
  const SessionTrial& trial = *trials[id.index()];
  const TrialResult& result = trial.result;
  return {.time_s = now_s(),
          .trial = id,
          .kind = kind,
          .lanes = result.lanes,
          .state = result.state,
          .step = result.steps,
          .loss = result.final_loss.value_or(0),
          .learning_rate =
              learning_rate_at(trial.config.train, std::max<std::int64_t>(result.steps, 1) - 1),
          .gradient_norm = trial.history.last_gradient_norm().value_or(0),
          .tokens_per_s = result.tokens_per_s,
          .reason = result.reason,
          .weights_xxh3 = result.weights_xxh3};
}

void Session::Impl::add_event(DeviceId id, SessionEvent::Kind kind, const std::string& reason) {
  events.add(
      {.time_s = now_s(), .kind = kind, .device = static_cast<int>(id.value), .reason = reason});
}

}  // namespace spillway
