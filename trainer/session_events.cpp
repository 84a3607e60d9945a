#include <algorithm>
#include <utility>

#include "trainer/optimizer.h"
#include "trainer/session_impl.h"

namespace spillway {

void Session::Impl::on_started(JobId id) {
  const std::lock_guard lock(mutex);
  SessionTrial& trial = *trials[id.index()];
  trial.started_s = now_s();
  trial.started = true;
  if (!trial.stranded) set_state(id, TrialState::running, "");
}

void Session::Impl::on_committed(JobId id, std::int64_t step) {
  const std::lock_guard lock(mutex);
  refresh(id, step);
  add_event(id, SessionEvent::Kind::step);
}

void Session::Impl::on_redone(JobId id, std::int64_t) {
  const std::lock_guard lock(mutex);
  add_event(id, SessionEvent::Kind::redone);
}

void Session::Impl::on_resized(JobId id, const JobPlan& plan) {
  const std::lock_guard lock(mutex);
  TrialResult& result = trials[id.index()]->result;
  result.lanes = static_cast<int>(plan.lanes.size());
  result.num_shards = static_cast<int>(plan.shards.size());
  result.order = plan.vn_major ? "vn_major" : "shard_major";
  add_event(id, SessionEvent::Kind::resized);
}

void Session::Impl::on_ended(JobId id, JobEnd end, const std::string& reason) {
  const std::lock_guard lock(mutex);
  refresh(id, trials[id.index()]->result.steps);
  set_state(id,
            end == JobEnd::done     ? TrialState::done
            : end == JobEnd::failed ? TrialState::failed
                                    : TrialState::stopped,
            reason);
}

void Session::Impl::set_state(JobId id, TrialState state, const std::string& reason) {
  TrialResult& result = trials[id.index()]->result;
  result.state = state;
  result.reason = reason;
  add_event(id, SessionEvent::Kind::state);
}

/// Takes over what the trial has reached.
void Session::Impl::refresh(JobId id, std::int64_t step) {
  SessionTrial& trial = *trials[id.index()];
  TrialResult& result = trial.result;
  const TrainingJob::Progress news = trial.job->take_progress();
  if (step > result.steps) trial.last_s = now_s();
  result.steps = step;
  result.losses.insert(result.losses.end(), news.losses.begin(), news.losses.end());
  result.weights_xxh3 = news.weights_xxh3;
  if (!result.losses.empty()) {
    result.first_loss = result.losses.front();
    result.final_loss = result.losses.back();
  }
  const double elapsed = trial.last_s - trial.started_s;
  if (step > 0 && elapsed > 0) {
    result.tokens_per_s = news.weight_per_step * static_cast<double>(step) / elapsed;
  }
  for (const auto& [eval_step, loss] : news.eval_losses) {
    result.eval_losses.emplace_back(eval_step, loss);
    result.eval_loss = loss;
    SessionEvent& event = add_event(id, SessionEvent::Kind::eval);
    event.step = eval_step;
    event.loss = loss;
  }
  trial.gradient_norm = news.gradient_norm;
}

SessionEvent& Session::Impl::add_event(JobId id, SessionEvent::Kind kind) {
  const SessionTrial& trial = *trials[id.index()];
  const TrialResult& result = trial.result;
  events.push_back({.sequence = events.size() + 1,
                    .time_s = now_s(),
                    .trial = id,
                    .kind = kind,
                    .lanes = result.lanes,
                    .state = result.state,
                    .step = result.steps,
                    .loss = result.final_loss.value_or(0),
                    .learning_rate = learning_rate_at(trial.config.train,
                                                      std::max<std::int64_t>(result.steps, 1) - 1),
                    .gradient_norm = trial.gradient_norm,
                    .tokens_per_s = result.tokens_per_s,
                    .reason = result.reason,
                    .weights_xxh3 = result.weights_xxh3});
  changed.notify_all();
  return events.back();
}

void Session::Impl::add_event(DeviceId id, SessionEvent::Kind kind, const std::string& reason) {
  events.push_back({.sequence = events.size() + 1,
                    .time_s = now_s(),
                    .kind = kind,
                    .device = static_cast<int>(id.value),
                    .reason = reason});
  changed.notify_all();
}

}  // namespace spillway
