#include <fmt/format.h>

#include <utility>

#include "trainer/config/host_groups.h"
#include "trainer/hosts/invitation.h"
#include "trainer/session/session_impl.h"

/// Hosts that shard the state of trials: each has the moments of the weights that it updates alone.
/// So no host can save a trial by itself, and the state of the open step is lost with any host.
namespace spillway {

/// If their state is sharded: whether host 0 saves the trial after `step` steps, for which all
/// hosts send what they have.
bool Session::Impl::saves_after(const SessionTrial& trial, std::int64_t step) const {
  if (!trial.remote_moments || !trial.checkpoints) return false;
  const bool is_last = step == trial.config.train.max_steps && trial.config.checkpoint.keep > 0;
  return is_last || trial.wants_save || trial.checkpoints->is_due(step);
}

void Session::Impl::share_moments(SessionTrial& trial, const Home& home) const {
  const auto number = static_cast<std::uint64_t>(trial.exchange);
  if (hosts->number() == 0) {
    trial.remote_moments = std::make_unique<RemoteMoments>(hosts->peers(), number, trial.plan);
  } else {
    trial.moment_sender = std::make_unique<MomentSender>(hosts->peers(), number, trial.plan, home);
  }
}

/// After a commit: host 0 may have asked for the state. It has gathered what others have when their
/// updates wait no longer.
void Session::Impl::save_with_hosts(JobId id) {
  SessionTrial& saved = trial(id);
  if (!saved.job->saves() || !saved.lifecycle.is_live()) return;
  if (saved.remote_moments) {
    saved.wants_save = false;
    saved.is_being_saved = true;
    return saved.checkpoints->save(saved.history);
  }
  StateGate& gate = saved.job->gate();
  MomentSender& sender = *saved.moment_sender;
  sender.wait();  // host 0 has taken all of the checkpoint before
  gate.begin_snapshot(saved.result.steps,
                      [&gate, &sender, params = saved.model->spec.params.size()] {
                        for (std::size_t p = 0; p < params; ++p) {
                          if (!gate.wait_for(p)) return gate.end_snapshot();  // the trial has ended
                        }
                        sender.begin([&gate](std::size_t param) { gate.release(param); },
                                     [&gate] { gate.end_snapshot(); });
                      });
}

/// If the state of trials is sharded, host 0 cannot save it alone when they end. Saves those that
/// train after their next step, and then goes on. False if there is nothing to wait for.
bool Session::Impl::save_before(AfterSaving what) {
  if (!hosts || config.hosts.state != HostStateKind::sharded || hosts->number() > 0) return false;
  if (round > 0 || invites || after_saving == AfterSaving::stop) return false;
  bool waits = false;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    SessionTrial& saved = *trials[t];
    const bool trains = trains_on_hosts(JobId(t)) && saved.remote_moments &&
                        saved.lifecycle.phase() == TrialPhase::running;
    if (!trains || saved.config.checkpoint.keep == 0) continue;
    saved.wants_save = waits = true;
  }
  if (waits) after_saving = what;
  return waits;
}

/// Once all have been saved for which something waits.
void Session::Impl::go_on_after_saving() {
  if (after_saving == AfterSaving::train) return;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const SessionTrial& saved = *trials[t];
    if (!trains_on_hosts(JobId(t)) || saved.lifecycle.phase() != TrialPhase::running) continue;
    if (saved.wants_save || saved.is_being_saved) return;
  }
  const AfterSaving next = std::exchange(after_saving, AfterSaving::train);
  next == AfterSaving::stop ? stop_all() : hosts->renew();
}

/// A host is lost, and its part of the state with it: all sessions end without saving, and the
/// hosts that are left, and their guests, resume from the newest checkpoint.
void Session::Impl::restart_from_checkpoint() {
  if (hosts->number() > 0) return;  // host 0 tells
  if (config.hosts.run_folder.empty()) {
    return leave_hosts(fmt::format("hosts.state is sharded, and a host is lost; {}", kRestart));
  }
  hosts->admit_guests(most_hosts());
  invites = true;
  store.keep_mark();
  shell->stop_all();
}

}  // namespace spillway
