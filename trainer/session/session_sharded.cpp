#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "trainer/hosts/invitation.h"
#include "trainer/session/session_impl.h"

/// Hosts that shard the state of trials: each has the moments of the weights that it updates alone.
/// So no host can save a trial by itself, and with any host the steps since the latest checkpoint
/// are lost.
namespace spillway {
namespace {

constexpr std::chrono::milliseconds kRetry(5);

/// Each parameter may be updated again once its moments are sent.
void send_moments(TrainingJob& job, MomentSender& sender) {
  StateGate& gate = job.gate();
  for (std::size_t p = 0; p < gate.num_params(); ++p) {
    if (gate.wait_for(p)) continue;
    gate.end_snapshot();  // the trial has ended
    return sender.give_up();
  }
  sender.begin(
      *job.home(), [&gate](std::size_t param) { gate.release(param); },
      [&gate] { gate.end_snapshot(); });
}

}  // namespace

/// Whether host 0 saves the trial after `step` steps, for which all hosts send what they have. It
/// always does so after the last: if the weights cannot be written, a checkpoint has them.
bool Session::Impl::saves_after(const SessionTrial& trial, std::int64_t step) {
  if (!trial.remote_moments || !trial.checkpoints || trial.config.checkpoint.keep == 0)
    return false;
  if (step == trial.config.train.max_steps) return true;
  return trial.checkpoints->is_due(step) || (trial.wants_save && !trial.checkpoints->is_saving());
}

void Session::Impl::share_moments(SessionTrial& trial) const {
  const auto number = static_cast<std::uint64_t>(trial.exchange);
  if (hosts->number() == 0) {
    trial.remote_moments = std::make_unique<RemoteMoments>(hosts->peers(), number, trial.plan);
  } else {
    trial.moment_sender = std::make_unique<MomentSender>(hosts->peers(), number, trial.plan);
  }
}

/// After a commit: host 0 may have asked for the state. Only after the last step may an earlier
/// checkpoint still be on its way; nothing changes the state then.
void Session::Impl::save_with_hosts(JobId id) {
  SessionTrial& saved = trial(id);
  saved.is_being_saved = saved.job->saves() && saved.lifecycle.is_live();
  if (!saved.is_being_saved) return;
  const bool is_busy =
      saved.remote_moments ? saved.checkpoints->is_saving() : saved.moment_sender->is_busy();
  if (is_busy) {
    return shell->call_after(kRetry, [this, id] {
      const MutexLock lock(mutex);
      save_with_hosts(id);
    });
  }
  if (saved.remote_moments) {
    saved.wants_save = false;
    return saved.checkpoints->save(saved.history);
  }
  saved.is_being_saved = false;  // the sender knows
  TrainingJob& job = *saved.job;
  MomentSender& sender = *saved.moment_sender;
  sender.prepare();
  job.gate().begin_snapshot(saved.result.steps, [&job, &sender] { send_moments(job, sender); });
}

/// Ends the op once the last checkpoint has been written, or this host has sent its part.
void Session::Impl::end_last_save(JobId id, const Ended& ended) {
  {
    const MutexLock lock(mutex);
    const SessionTrial& saved = trial(id);
    const bool is_open =
        saved.is_being_saved || (saved.moment_sender && saved.moment_sender->is_busy());
    if (is_open) {
      return shell->call_after(kRetry, [this, id, ended] { end_last_save(id, ended); });
    }
  }
  ended(/*is_lost=*/false);
}

/// All hosts drop the open step: a checkpoint that is being read fails.
void Session::Impl::drop_moments() const {
  for (const auto& trial : trials) {
    if (trial->remote_moments) trial->remote_moments->drop();
    if (trial->moment_sender) trial->moment_sender->drop();
  }
}

/// Host 0 cannot save trials alone when they end. Saves those that train after their next step, and
/// then goes on. False if there is nothing to wait for.
bool Session::Impl::save_before(AfterSaving what) {
  if (!hosts || config.hosts.state != HostStateKind::sharded || hosts->number() > 0) return false;
  if (invites || after_saving == AfterSaving::stop) return false;
  bool waits = false;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    SessionTrial& saved = *trials[t];
    const bool trains = trains_on_hosts(JobId(t)) && saved.remote_moments &&
                        saved.lifecycle.phase() == TrialPhase::running && !saved.interrupted_at;
    if (!trains || saved.config.checkpoint.keep == 0) continue;
    saved.wants_save = waits = true;
  }
  if (waits) after_saving = what;
  return waits;
}

/// Once all have been saved for which something waits.
void Session::Impl::go_on_after_saving() {
  if (after_saving == AfterSaving::nothing) return;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const SessionTrial& saved = *trials[t];
    if (!trains_on_hosts(JobId(t)) || saved.lifecycle.phase() != TrialPhase::running) continue;
    if (saved.wants_save || saved.is_being_saved) return;
  }
  const AfterSaving next = std::exchange(after_saving, AfterSaving::nothing);
  next == AfterSaving::stop ? stop_all() : hosts->renew();
}

/// Whether hosts cannot repeat a step: one of them is lost, and its part of the state with it, or
/// some have updated theirs and others have not.
bool Session::Impl::lacks_state(const Agreement& agreement) const {
  if (config.hosts.state != HostStateKind::sharded) return false;
  const auto all = at(hosts->size());
  return hosts->present().size() < all || !agreement.behind.empty() ||
         std::ranges::any_of(agreement.computing,
                             [&](const auto& trial) { return trial.second.size() < all; });
}

/// All sessions end without saving; the hosts that are left, and their guests, resume from the
/// newest checkpoint.
void Session::Impl::restart_from_checkpoint() {
  constexpr const char* kProblem =
      "a host is lost, or a step cannot be repeated, while hosts shard the state of trials";
  if (after_saving == AfterSaving::stop) return stop_all();
  const bool is_led = hosts->number() == 0 || !hosts->has_parted(0);
  if (!is_led || config.hosts.run_folder.empty()) {
    return leave_hosts(fmt::format("{}; {}", kProblem, kRestart));
  }
  if (hosts->number() > 0) return;  // host 0 tells
  hosts->admit_guests(most_hosts());
  invites = true;
  store.keep_mark();
  shell->stop_all();
}

}  // namespace spillway
