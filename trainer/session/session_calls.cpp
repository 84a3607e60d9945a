#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "trainer/config/train_changes.h"
#include "trainer/session/session_impl.h"

/// Calls about one trial, at any time.
namespace spillway {

SessionTrial& Session::Impl::known_trial(JobId id) const {
  if (id.index() < trials.size()) return trial(id);
  throw Error(fmt::format("there is no trial {}; the session has {}", id.value, trials.size()));
}

/// Throws ConfigError (`until`).
std::int64_t Session::Impl::require_until(const TrainConfig& train, std::int64_t until) {
  if (until >= 1 && until <= train.max_steps) return until;
  throw ConfigError("until", 0,
                    fmt::format("is {}, must be an integer from 1 to train.max_steps, {}", until,
                                train.max_steps));
}

/// Without commands the trial is in no run; the call then takes effect in the next run.
void Session::Impl::carry_out_for(JobId id, const RunCommands& commands) {
  if (!commands.empty()) carry_out(commands);
  update_phase(id);
}

void Session::stop(JobId id) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  SessionTrial& stopped = impl.known_trial(id);
  if (stopped.ended()) return;
  if (stopped.exchange >= 0 && impl.save_before(AfterSaving::stop)) return;
  stopped.request = TrialRequest::stop;
  if (impl.is_in_run(id)) {
    impl.shell->stop(id);
  } else {
    impl.end(id, TrialPhase::stopped, "");
  }
  impl.leave_others(stopped, "was stopped");
}

void Session::pause(JobId id) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  SessionTrial& paused = impl.known_trial(id);
  if (paused.ended() || paused.request != TrialRequest::run) return;
  if (impl.config.hosts.state != HostStateKind::replicated) {
    Impl::require_alone(paused, "paused while they shard its state");
  }
  paused.request = TrialRequest::pause;
  RunCommands commands;
  if (impl.is_in_run(id)) impl.controller->suspend(id, commands);
  impl.carry_out_for(id, commands);
}

void Session::resume(JobId id) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  SessionTrial& resumed = impl.known_trial(id);
  if (resumed.ended() || resumed.request != TrialRequest::pause) return;
  resumed.request = TrialRequest::run;
  RunCommands commands;
  if (impl.is_in_run(id)) impl.controller->resume(id, impl.now_s(), commands);
  impl.carry_out_for(id, commands);
}

void Session::extend(JobId id, std::int64_t until) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  SessionTrial& extended = impl.known_trial(id);
  if (extended.ended()) return;
  if (impl.config.hosts.state != HostStateKind::replicated) {
    Impl::require_alone(extended, "extended while they shard its state");
  }
  extended.config.until = Impl::require_until(extended.config.train, until);
  RunCommands commands;
  if (impl.is_in_run(id)) impl.controller->extend(id, extended.until(), impl.now_s(), commands);
  impl.carry_out_for(id, commands);
}

void Session::exempt_from_early_stopping(JobId id) {
  Impl& impl = *impl_;
  {
    const MutexLock lock(impl.mutex);
    SessionTrial& exempt = impl.known_trial(id);
    const bool is_ending = exempt.ended() || exempt.lifecycle.phase() == TrialPhase::stopping_early;
    if (is_ending || exempt.is_evaluation) return;
    exempt.config.exempt_from_early_stopping = true;
    impl.store.record_state(exempt);
    RunCommands commands;
    if (impl.is_in_run(id)) impl.controller->exempt(id, impl.now_s(), commands);
    impl.carry_out_for(id, commands);
  }
  impl.store.flush();
}

/// `reason`: for users.
TrainChange Session::Impl::change(JobId id, const TrainValues& values, const std::string& reason) {
  SessionTrial& changed = known_trial(id);
  const std::string& name = changed.config.name;
  if (changed.ended()) {
    throw ConfigError("trial", 0,
                      fmt::format("'{}' has ended: {}; its values cannot change, clone it instead",
                                  name, to_string(changed.result.state)));
  }
  const auto change = changed.job->set(values);
  if (!change) {
    throw ConfigError(
        "trial", 0,
        fmt::format("'{}' has committed its last step; clone it with more steps", name));
  }
  changed.history.add_change(*change);
  SessionEvent event = event_of(id, SessionEvent::Kind::set);
  event.step = change->step;
  event.learning_rate = changed.job->learning_rate(change->step);
  event.reason = reason;
  events.add(std::move(event));
  return *change;
}

std::int64_t Session::set(JobId id, const TrainValues& values) {
  Impl& impl = *impl_;
  require_valid(values, "set.");
  if (values == TrainValues()) {
    throw ConfigError("set", 0, "is empty; give learning_rate, weight_decay or max_grad_norm");
  }
  const MutexLock setting(impl.setting);
  TrainChange change;
  std::string client_id;
  std::vector<TrainChange> changes;
  {
    const MutexLock lock(impl.mutex);
    Impl::require_alone(impl.known_trial(id), "changed while it trains");
    change = impl.change(id, values, to_string(values));
    client_id = impl.trial(id).config.client_id;
    changes = impl.trial(id).history.changes();
  }
  impl.store.record_changes(client_id, changes);
  return change.step;
}

}  // namespace spillway
