#include <algorithm>
#include <cassert>
#include <chrono>
#include <future>
#include <utility>

#include "trainer/session/session_impl.h"

/// Trials whose state hosts shard, each part on two hosts. After a loss, hosts that have not
/// committed the last step of a trial do so with the numbers of one that has. All complete its
/// updates, and host 0 or its successor saves a checkpoint of it, from which all then go on.
///
/// If one host has committed a step, all others have the sums for it: they tell their norms, which
/// a commit needs, only after that.
namespace spillway {
namespace {

/// The hosts on which a trial of the agreement has not ended.
std::set<int> hosts_of(const Agreement& agreement, int exchange) {
  std::set<int> found = agreement.computing.at(exchange);
  const auto ahead = agreement.ahead.find(exchange);
  if (ahead != agreement.ahead.end()) found.insert(ahead->second.begin(), ahead->second.end());
  return found;
}

/// The host that saves: the first one that trains anything. None: nobody does.
std::optional<int> reader_of(const Agreement& agreement) {
  std::optional<int> reader;
  for (const auto& [exchange, computing] : agreement.computing) {
    const int first = *hosts_of(agreement, exchange).begin();
    reader = std::min(reader.value_or(first), first);
  }
  return reader;
}

StateRoute route_after(const Agreement& agreement, int exchange, int reader, int num_hosts) {
  StateRoute route{.reader = reader, .gone = {}, .is_rescue = true};
  const std::set<int> left = hosts_of(agreement, exchange);
  for (int h = 0; h < num_hosts; ++h) {
    if (!left.contains(h)) route.gone.insert(h);
  }
  return route;
}

}  // namespace

/// If hosts cannot go on without a checkpoint: what those that are left can save. All of them come
/// to the same result.
void Session::Impl::prepare_rescue(const Agreement& agreement) {
  if (rescue && rescue->agreement.round == agreement.round) return;  // has been told again
  rescue.reset();
  if (config.hosts.state != HostStateKind::shadowed || !lacks_state(agreement)) return;
  const auto reader = reader_of(agreement);
  const bool is_led = reader == 0 || hosts->needs_successor();
  // Only the successor may write the run's folder.
  const bool is_another = reader != 0 && hosts->is_successor() != (reader == hosts->number());
  if (!reader || !is_led || is_another) return;
  Rescue next{.agreement = agreement, .reader = *reader, .trials = {}};
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const SessionTrial& rescued = *trials[t];
    // One that is not in the agreement has begun since.
    if (!trains_on_hosts(JobId(t)) || !agreement.computing.contains(rescued.exchange)) continue;
    StateRoute route = route_after(agreement, rescued.exchange, *reader, hosts->size());
    // One that has ended on the reader, or lacks a part, goes on from what was saved before.
    const bool can_read = !route.gone.contains(*reader) && route.reaches_all(rescued.plan->layout);
    if (can_read) next.trials[JobId(t)].route = std::move(route);
  }
  if (!next.trials.empty()) rescue = std::move(next);
}

/// The reader calls it once it may write the run's folder.
void Session::Impl::rescue_trials() {
  if (!rescue || std::exchange(rescue->has_begun, true)) return;
  must_restart = true;
  for (auto& [id, rescued] : rescue->trials) exchange_numbers(id, rescued);
  go_on_rescuing(rescue->agreement.round);
}

/// A host that has committed the last step gives its numbers to those that have not.
void Session::Impl::exchange_numbers(JobId id, Rescue::Trial& rescued) {
  const SessionTrial& trial = this->trial(id);
  const auto ahead = rescue->agreement.ahead.find(trial.exchange);
  if (ahead == rescue->agreement.ahead.end()) return;
  const auto number = static_cast<std::uint64_t>(trial.exchange);
  const std::set<int>& behind = rescue->agreement.computing.at(trial.exchange);
  const int first = *ahead->second.begin();
  if (first == hosts->number()) {
    for (int h : behind) send_numbers(hosts->peers(), number, h, trial.job->last_numbers());
  }
  if (!behind.contains(hosts->number())) return;
  rescued.is_behind = true;
  assert(trial.job->has_told(*trial.interrupted_at));
  rescued.numbers = std::make_shared<std::promise<std::vector<std::byte>>>();
  rescued.coming = rescued.numbers->get_future();
  take_numbers(hosts->peers(), number, first, trial.job->num_bytes_told(),
               [taken = rescued.numbers](std::vector<std::byte> numbers) {
                 taken->set_value(std::move(numbers));
               });
}

/// Until all trials are saved. A further loss begins another round.
void Session::Impl::go_on_rescuing(std::int64_t in_round) {
  constexpr std::chrono::milliseconds kRetry(5);
  const bool is_open = rescue && rescue->agreement.round == in_round;
  if (!is_open || !hosts->problem().empty()) return;
  bool waits = false;
  for (auto& [id, rescued] : rescue->trials) waits = !go_on_rescuing(id, rescued) || waits;
  if (waits) {
    return serving->call_after(kRetry, [this, in_round] {
      const MutexLock lock(mutex);
      go_on_rescuing(in_round);
    });
  }
  if (rescue->reader != hosts->number()) return;  // the reader tells how all go on
  rescue.reset();
  if (run_lock && after_saving == AfterSaving::nothing) return shell->stop_all();
  restart_from_checkpoint();
}

/// Returns whether nothing is left to do for the trial on this host.
bool Session::Impl::go_on_rescuing(JobId id, Rescue::Trial& rescued) {
  const SessionTrial& trial = this->trial(id);
  if (!trains_on_hosts(id)) return true;
  const bool is_reader = rescue->reader == hosts->number();
  if (rescued.is_being_saved) {
    // If a host was lost meanwhile, another round comes.
    return !is_reader || (!trial.checkpoints->is_saving() && !trial.sharded.remote->has_failed());
  }
  if (rescued.is_behind) {
    if (rescued.coming.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    commit_late(id, rescued.coming.get());
    rescued.is_behind = false;
  }
  const std::int64_t step = *trial.interrupted_at;
  if (step == trial.first_step || (is_reader && !trial.checkpoints)) return true;
  // Hosts have dropped the checkpoints before, so these end soon.
  if (trial.job->gate().is_read_before(step)) return false;
  trial.job->complete_updates(step);
  const bool is_busy = is_reader ? trial.checkpoints->is_saving() : trial.sharded.sender->is_busy();
  if (is_busy) return false;
  rescued.is_being_saved = true;
  save_rescued(id, rescued.route);
  return !is_reader;
}

/// The engine does not hear of it: the trial ends before it could go on.
void Session::Impl::commit_late(JobId id, const std::vector<std::byte>& numbers) {
  SessionTrial& behind = trial(id);
  behind.job->commit_with(numbers);
  ++*behind.interrupted_at;
  refresh(id, *behind.interrupted_at);
  add_event(id, SessionEvent::Kind::step);
}

/// The reader saves the state, and the others send it.
void Session::Impl::save_rescued(JobId id, const StateRoute& route) {
  SessionTrial& saved = trial(id);
  ShardedSaving& sharded = saved.sharded;
  assert(saved.history.num_steps() == *saved.interrupted_at);
  sharded.step.reset();
  if (route.reader != hosts->number()) {
    sharded.sender->take_route(route);
    return send_state(saved, *saved.interrupted_at);
  }
  if (!sharded.remote) {
    const auto number = static_cast<std::uint64_t>(saved.exchange);
    sharded.remote = std::make_unique<RemoteState>(hosts->peers(), number, saved.plan);
    TrainingJob& job = *saved.job;
    saved.checkpoints->attach(job.places(), *job.home(), job.gate(), sharded.remote.get());
  }
  sharded.remote->take_route(route);
  saved.checkpoints->save(saved.history);
}

}  // namespace spillway
