#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "trainer/session/session_impl.h"

namespace spillway {
namespace {

TrialPhase phase_of(JobEnd end) {
  switch (end) {
    case JobEnd::done:
      return TrialPhase::done;
    case JobEnd::failed:
      return TrialPhase::failed;
    case JobEnd::stopped:
      break;
  }
  return TrialPhase::stopped;
}

/// Empty if the trial waits for nothing that users could change.
std::string wait_reason(const SessionTrial& trial, const SessionConfig& config,
                        const std::optional<Rungs>& rungs) {
  switch (trial.lifecycle.phase()) {
    case TrialPhase::stranded:
      return fmt::format("no device is left that can run it; add one of at least {}",
                         format_bytes(trial.planned.summary.smallest_budget_bytes));
    case TrialPhase::at_rung:
      if (rungs->from(trial.result.steps) != trial.result.steps) {
        return fmt::format("{} trials train at once; it begins when one of them ends",
                           config.early_terminate->max_concurrent_trials);
      }
      return fmt::format(
          "other trials have not reached step {} yet, where early stopping compares them",
          trial.result.steps);
    case TrialPhase::at_until:
      return fmt::format("it is paused at step {}; call extend() to continue it",
                         trial.result.steps);
    case TrialPhase::suspended:
      return "it is paused; call resume() to continue it";
    case TrialPhase::paused:
      return fmt::format("other trials use the devices (scheduling.sharing: {})",
                         to_string(config.sharing));
    default:
      return "";
  }
}

}  // namespace

void Session::Impl::on_started(JobId id) {
  const MutexLock lock(mutex);
  controller->on_admitted(demand(id), now_s());
  decide_if_due();
  update_phase(id);
}

void Session::Impl::on_committed(const StepCommitted& committed) {
  const MutexLock lock(mutex);
  const JobId id = committed.job;
  if (const auto change = difference(trial(id).flags, kernel_flags(devices.on_gpus()));
      !change.empty()) {
    shell->fail(id, change +
                        " when the trial was submitted, which can change its bits; set it back "
                        "and submit the trial again");
    return;
  }
  refresh(id, committed.step);
  add_event(id, SessionEvent::Kind::step);
  controller->on_committed(committed, now_s());
  if (trial(id).plan->layout.is_sharded()) {
    hear_words(id);
  } else if (!controller->is_rung(id, committed.step)) {
    save_if_due(id);
  }
  decide_if_due();
}

/// Its updates are complete, so a checkpoint does not wait for anything.
void Session::Impl::on_rested(const JobRested& rested) {
  const MutexLock lock(mutex);
  const JobId id = rested.job;
  refresh(id, rested.step);
  trial(id).rested_step = rested.step;
  const RungLosses losses = rung_losses(trial(id));
  const bool has_loss = !losses.empty() && losses.back().first == rested.step;
  const auto loss = has_loss ? std::optional(losses.back().second) : std::nullopt;
  RunCommands commands;
  controller->on_rested(rested, loss, now_s(), commands);
  save_at_rest(id);
  carry_out(commands);
  update_phase(id);
}

void Session::Impl::on_redone(JobId id, std::int64_t) {
  const MutexLock lock(mutex);
  add_event(id, SessionEvent::Kind::redone);
  controller->on_redone(id);
}

void Session::Impl::on_resized(JobId id, const JobPlan& plan) {
  const MutexLock lock(mutex);
  SessionTrial& resized = trial(id);
  TrialResult& result = resized.result;
  result.lanes = plan.strategy.tracks;
  result.num_shards = static_cast<int>(plan.strategy.stages.size());
  result.order = plan.order();
  const bool is_latest = &plan == resized.plan.get();  // else a later one is on its way
  SessionEvent event = event_of(id, SessionEvent::Kind::resized);
  if (is_latest) event.reason = std::exchange(resized.lanes.reason, {});
  events.add(std::move(event));
  if (!is_latest) return;
  controller->on_resized(id);
  decide_if_due();
}

void Session::Impl::on_ended(JobId id, JobEnd job_end, const std::string& reason) {
  const MutexLock lock(mutex);
  const SessionTrial& ended = trial(id);
  refresh(id, ended.result.steps);
  if (job_end == JobEnd::done && ended.lifecycle.phase() == TrialPhase::stopping_early) {
    end(id, TrialPhase::stopped_early, ended.early_stop_reason);
  } else {
    const bool is_left = job_end == JobEnd::stopped && ended.exchange >= 0;
    end(id, phase_of(job_end), is_left ? hosts->problem() : reason);
  }
  if (job_end == JobEnd::failed && !ended.job->failed_to_commit()) {
    leave_others(ended, fmt::format("has failed: {}", reason));
  }
  rest_if_all_do();
  go_on_after_saving();
  RunCommands commands;
  controller->on_ended(id, now_s(), commands);
  carry_out(commands);
}

void Session::Impl::set_state(JobId id, TrialState state, const std::string& reason) {
  TrialResult& result = trial(id).result;
  result.state = state;
  result.reason = reason;
  add_event(id, SessionEvent::Kind::state);
  if (!trial(id).is_evaluation) store.record_state(trial(id));
}

void Session::Impl::end(JobId id, TrialPhase phase, const std::string& reason) {
  trial(id).lifecycle.enter(phase);
  set_state(id, *shown_state(phase), reason);
  idle.notify_all();
}

/// The phase of a live trial that some present device can run.
TrialPhase Session::Impl::live_phase(JobId id) const {
  const TrialPhase phase = trial(id).lifecycle.phase();
  if (!controller) {
    if (trial(id).request == TrialRequest::pause) return TrialPhase::suspended;
    const bool stays = phase != TrialPhase::stranded && phase != TrialPhase::suspended;
    return stays ? phase : TrialPhase::submitted;
  }
  switch (controller->waits(id)) {
    case JobWait::nothing:
      return controller->is_admitted(id) ? TrialPhase::running : TrialPhase::submitted;
    case JobWait::decision:
      return TrialPhase::undecided;
    case JobWait::devices:
      return TrialPhase::paused;
    case JobWait::rung:
      return TrialPhase::at_rung;
    case JobWait::until:
      return TrialPhase::at_until;
    case JobWait::user:
      return TrialPhase::suspended;
  }
  return TrialPhase::submitted;
}

/// A stranded trial stays stranded until the devices change, see refit().
void Session::Impl::update_phase(JobId id) {
  TrialLifecycle& lifecycle = trial(id).lifecycle;
  if (!lifecycle.is_live()) return;
  if (lifecycle.phase() != TrialPhase::stranded) lifecycle.enter(live_phase(id));
  show_phase(id);
}

/// Tells users what has changed.
void Session::Impl::show_phase(JobId id) {
  idle.notify_all();
  go_on_after_saving();
  SessionTrial& shown = trial(id);
  TrialResult& result = shown.result;
  const TrialPhase phase = shown.lifecycle.phase();
  const std::optional<TrialState> state = shown_state(phase);
  const std::string waits_for = wait_reason(shown, config, rungs());
  if (!state || (state == result.state && waits_for == result.reason)) return;
  if (phase == TrialPhase::running && result.steps == shown.first_step) shown.started_s = now_s();
  set_state(id, *state, waits_for);
}

/// Not while the trial waits: the checkpoint would be read after its next updates, and keep the
/// writer until then.
void Session::Impl::save_if_due(JobId id) {
  const SessionTrial& saved = trial(id);
  if (!saved.lifecycle.is_live() || controller->waits(id) != JobWait::nothing) return;
  if (!saved.checkpoints || !saved.checkpoints->is_due(saved.result.steps)) return;
  saved.checkpoints->save(saved.history);
}

/// Of a trial that waits for the user: nobody knows how long. If an earlier checkpoint is still
/// being written, it tries again later: this thread serves all trials.
void Session::Impl::save_at_rest(JobId id) {
  constexpr std::chrono::milliseconds kRetry(20);
  const SessionTrial& saved = trial(id);
  const bool is_new =
      saved.checkpoints && !saved.sharded.remote && saved.result.steps > saved.first_step;
  if (!is_new || !saved.lifecycle.is_live()) return;
  const JobWait wait = controller->waits(id);
  if (wait != JobWait::until && wait != JobWait::user) return;
  if (!saved.checkpoints->is_saving()) return saved.checkpoints->save_unless_saved(saved.history);
  shell->call_after(kRetry, [this, id] {
    const MutexLock lock(mutex);
    save_at_rest(id);
  });
}

/// On the thread of the writer, for which others wait under `mutex`: it must not lock that.
void Session::Impl::on_saved(JobId id, const TrialCheckpoints::Saved& saved) {
  events.add({.time_s = now_s(),
              .trial = id,
              .kind = SessionEvent::Kind::saved,
              .generation = saved.generation,
              .step = saved.step,
              .reason = saved.problem});
  add_damage(id, saved.step, saved.findings);
  if (!hosts || config.hosts.state == HostStateKind::replicated) return;
  serving->call([this, id, step = saved.step, has_failed = !saved.problem.empty()] {
    const MutexLock lock(mutex);
    note_saved(id, step, has_failed);
  });
}

void Session::Impl::add_damage(JobId id, std::int64_t step, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    events.add({.time_s = now_s(),
                .trial = id,
                .kind = SessionEvent::Kind::damaged,
                .step = step,
                .reason = finding.problem});
  }
}

void Session::Impl::copy_losses(SessionTrial& trial) {
  trial.result.first_loss = trial.history.first_loss();
  trial.result.final_loss = trial.history.last_loss();
  trial.result.eval_loss = trial.history.last_eval_loss();
  trial.result.metrics = trial.history.last_metrics();
}

/// Takes over the progress of the job.
void Session::Impl::refresh(JobId id, std::int64_t step) {
  SessionTrial& current = trial(id);
  TrialResult& result = current.result;
  const TrainingJob::Progress news = current.job->take_progress();
  if (step > result.steps) current.last_s = now_s();
  result.steps = step;
  // Ignores a step whose commit was not reported, because the trial ended.
  for (std::size_t i = 0; i < news.losses.size() && current.history.num_steps() < step; ++i) {
    current.history.add_step(news.losses[i], news.gradient_norms[i]);
  }
  for (const auto& [eval_step, values] : news.evaluations) {
    current.history.add_eval(eval_step, values.loss, values.metrics);
  }
  result.weights_xxh3 = news.weights_xxh3;
  copy_losses(current);
  const double elapsed = current.last_s - current.started_s;
  if (step > current.first_step && elapsed > 0) {
    const auto steps = static_cast<double>(step - current.first_step);
    result.tokens_per_s = news.weight_per_step * steps / elapsed;
  }
  for (const auto& [eval_step, values] : news.evaluations) {
    SessionEvent event = event_of(id, SessionEvent::Kind::eval);
    event.step = eval_step;
    event.loss = values.loss;
    event.metrics = values.metrics;
    events.add(std::move(event));
  }
}

SessionEvent Session::Impl::event_of(JobId id, SessionEvent::Kind kind) const {
  const SessionTrial& current = trial(id);
  const TrialResult& result = current.result;
  const std::int64_t last = std::max<std::int64_t>(result.steps, 1) - 1;
  return {.time_s = now_s(),
          .trial = id,
          .kind = kind,
          .lanes = result.lanes,
          .state = result.state,
          .step = result.steps,
          .loss = result.final_loss.value_or(0),
          .learning_rate = current.job ? current.job->learning_rate(last) : 0,
          .gradient_norm = current.history.last_gradient_norm().value_or(0),
          .tokens_per_s = result.tokens_per_s,
          .reason = result.reason,
          .weights_xxh3 = result.weights_xxh3};
}

void Session::Impl::add_event(JobId id, SessionEvent::Kind kind) { events.add(event_of(id, kind)); }

void Session::Impl::add_event(DeviceId id, SessionEvent::Kind kind, const std::string& reason) {
  events.add(
      {.time_s = now_s(), .kind = kind, .device = static_cast<int>(id.value), .reason = reason});
}

}  // namespace spillway
