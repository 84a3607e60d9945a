#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "trainer/hosts/invitation.h"
#include "trainer/session/session_impl.h"

/// Hosts that shard the state of trials: each has only the moments of the weights that it updates,
/// and their masters if devices read a copy. So no host can save a trial by itself. If a host is
/// lost, and no other had its part (session_rescue.cpp), so are the steps since the newest
/// checkpoint.
namespace spillway {
namespace {

constexpr std::chrono::milliseconds kRetry(5);

}  // namespace

/// By another host than the one that saves. Each parameter may be updated again once its state is
/// sent.
void Session::Impl::send_state(const SessionTrial& trial, std::int64_t step) {
  StateSender& sender = *trial.sharded.sender;
  StateGate& gate = trial.job->gate();
  sender.prepare();
  gate.begin_snapshot(step, [&sender, &gate, home = trial.job->home()] {
    for (std::size_t p = 0; p < gate.num_params(); ++p) {
      if (gate.wait_for(p)) continue;
      gate.end_snapshot();  // the trial has ended
      return sender.give_up();
    }
    sender.begin(
        SentState::all, *home, [&gate](std::size_t param) { gate.release(param); },
        [&gate](bool) { gate.end_snapshot(); });
  });
}

/// What this host tells the others before they commit step `step`. Host 0 always saves the last
/// one: if the weights cannot be written, a checkpoint has them.
int Session::Impl::word_of(const SessionTrial& trial, std::int64_t step) {
  const ShardedSaving& sharded = trial.sharded;
  if (sharded.sender) return sharded.is_wanted ? kAsks : 0;
  if (!sharded.remote || !trial.checkpoints || trial.config.checkpoint.keep == 0) return 0;
  const int answer = sharded.has_answered ? kSaved : 0;
  const bool is_due =
      trial.checkpoints->is_due(step) || (sharded.is_wanted && !trial.checkpoints->is_saving());
  return answer + (is_due || step == trial.config.train.max_steps ? kSaves : 0);
}

void Session::Impl::share_state(SessionTrial& trial) const {
  const auto number = static_cast<std::uint64_t>(trial.exchange);
  if (hosts->number() == 0) {
    trial.sharded.remote = std::make_unique<RemoteState>(hosts->peers(), number, trial.plan);
  } else {
    trial.sharded.sender = std::make_unique<StateSender>(hosts->peers(), number, trial.plan);
  }
}

/// After a commit.
void Session::Impl::hear_words(JobId id) {
  SessionTrial& heard = trial(id);
  ShardedSaving& sharded = heard.sharded;
  const std::vector<int>& words = heard.job->words();
  const bool is_asked = std::ranges::any_of(words, [](int word) { return (word & kAsks) != 0; });
  if (sharded.remote && is_asked && !sharded.asked_at) {
    sharded.asked_at = heard.result.steps;
    sharded.is_wanted = true;
  }
  if (sharded.sender && (words.front() & kSaved) != 0) {
    sharded.is_wanted = false;
    go_on_after_saving();
  }
  if ((words.front() & kSaves) == 0 || !heard.lifecycle.is_live()) return;
  sharded.step = heard.result.steps;
  save_with_hosts(id, heard.result.steps, epoch);
}

/// All hosts save the state after `step`. Not if a round has begun since its commit: the others may
/// have committed it before, and have dropped it. Only the last step may have to wait for an
/// earlier checkpoint; nothing changes the state then.
void Session::Impl::save_with_hosts(JobId id, std::int64_t step, std::int64_t committed_in) {
  SessionTrial& saved = trial(id);
  ShardedSaving& sharded = saved.sharded;
  const bool is_last = step == saved.config.train.max_steps;
  if (round > 0 || epoch != committed_in || !saved.lifecycle.is_live()) {
    sharded.step.reset();
    if (sharded.remote && !is_last) sharded.is_wanted = true;
    return;
  }
  const bool is_busy = sharded.remote ? saved.checkpoints->is_saving() : sharded.sender->is_busy();
  if (is_busy && is_last) {
    return serving->call_after(kRetry, [this, id, step, committed_in] {
      const MutexLock lock(mutex);
      save_with_hosts(id, step, committed_in);
    });
  }
  if (sharded.remote) {
    sharded.is_wanted = false;
    return saved.checkpoints->save(saved.history);
  }
  sharded.sender->wait();  // short: host 0 asks again only after it has the checkpoint before
  sharded.step.reset();
  send_state(saved, step);
}

/// By host 0. If all hosts have dropped the step meanwhile, and something waits for it, it saves a
/// later one.
void Session::Impl::note_saved(JobId id, std::int64_t step, bool has_failed) {
  ShardedSaving& sharded = trial(id).sharded;
  if (!sharded.remote) return;
  if (sharded.step == step) sharded.step.reset();
  const bool is_asked = sharded.asked_at && !sharded.has_answered;
  const bool is_dropped = has_failed && sharded.remote->is_dropped();
  if (is_dropped && (is_asked || after_saving != AfterSaving::nothing)) {
    sharded.is_wanted = true;
  } else if (is_asked && step > *sharded.asked_at) {
    sharded.has_answered = true;
  }
  go_on_after_saving();
}

/// Ends the op once the last checkpoint has been written, or this host has sent its part. If hosts
/// divide the masters, host 0 then takes those of the others to hand out the weights.
void Session::Impl::end_last_save(JobId id, const Ended& ended) {
  const MutexLock lock(mutex);
  const SessionTrial& saved = trial(id);
  const ShardedSaving& sharded = saved.sharded;
  // Also an earlier checkpoint: after a round, the last one may have been given up before it ends.
  const bool is_reading = sharded.remote && saved.checkpoints && saved.checkpoints->is_saving();
  if (sharded.step || is_reading || (sharded.sender && sharded.sender->is_busy())) {
    return serving->call_after(kRetry, [this, id, ended] { end_last_save(id, ended); });
  }
  if (!saved.plan->layout.divides_masters()) return ended(/*is_lost=*/false);
  if (round > 0 || !saved.lifecycle.is_live()) return ended(/*is_lost=*/true);
  TrainingJob& job = *saved.job;
  if (sharded.sender) {
    sharded.sender->prepare();
    return sharded.sender->begin(
        SentState::masters, *job.home(), [](std::size_t) {}, ended);
  }
  sharded.remote->begin(SentState::masters, [this, id, ended] {
    store.on_writer([this, id, ended] { hand_out_weights(id, ended); });
  });
}

void Session::Impl::hand_out_weights(JobId id, const Ended& ended) {
  SessionTrial& trial = trial_of_run(id);
  RemoteState& remote = *trial.sharded.remote;
  trial.sharded.problem = nullptr;
  try {
    require_unchanged_files(id);
    trial.job->hand_out_weights(&remote);
  } catch (...) {
    trial.sharded.problem = std::current_exception();
  }
  const bool is_lost = remote.has_failed();
  remote.end();
  ended(is_lost);
}

/// All hosts drop the open step: a checkpoint that is being read fails.
void Session::Impl::drop_state() const {
  for (const auto& trial : trials) {
    if (trial->sharded.remote) trial->sharded.remote->drop();
    if (trial->sharded.sender) trial->sharded.sender->drop();
  }
}

/// No host can save trials alone when it ends. Waits until host 0 has saved those that train, after
/// their next steps, and then goes on. False if there is nothing to wait for.
bool Session::Impl::save_before(AfterSaving what) {
  if (!hosts || invites || after_saving == AfterSaving::stop) return false;
  bool waits = rescue && rescue->reader == hosts->number();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    SessionTrial& saved = *trials[t];
    const bool can_save =
        saved.sharded.is_used() && saved.checkpoints && saved.config.checkpoint.keep > 0;
    if (can_save && has_next_step(JobId(t))) saved.sharded.is_wanted = waits = true;
  }
  if (!waits) return false;
  after_saving = what;
  if (what == AfterSaving::stop && hosts->number() == 0) store.end_in_order();
  return true;
}

/// Whether hosts train the trial, or will as soon as they have agreed.
bool Session::Impl::has_next_step(JobId id) const {
  const bool waits = trial(id).interrupted_at && round == 0;  // for a device
  return trains_on_hosts(id) && trial(id).lifecycle.phase() == TrialPhase::running && !waits;
}

/// Once all have been saved for which something waits.
void Session::Impl::go_on_after_saving() {
  if (after_saving == AfterSaving::nothing || rescue) return;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const ShardedSaving& sharded = trials[t]->sharded;
    if (has_next_step(JobId(t)) && (sharded.is_wanted || sharded.step)) return;
  }
  const AfterSaving next = std::exchange(after_saving, AfterSaving::nothing);
  next == AfterSaving::stop ? stop_all() : hosts->renew();
}

/// Whether hosts cannot repeat a step: one of them is lost, and its part of the state with it, or
/// some have updated theirs and others have not.
bool Session::Impl::lacks_state(const Agreement& agreement) const {
  if (config.hosts.state == HostStateKind::replicated) return false;
  const auto all = at(hosts->size());
  return hosts->present().size() < all || !agreement.ahead.empty() || agreement.must_restart ||
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
