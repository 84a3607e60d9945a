#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/config_check.h"
#include "spillway/error.h"
#include "trainer/config/host_groups.h"
#include "trainer/hosts/invitation.h"
#include "trainer/runtime/exchange.h"
#include "trainer/session/session_impl.h"

/// Trials that several hosts train together: each host has a session with the same trials.
namespace spillway {
namespace {

std::string key_of(int exchange, int host) { return fmt::format("trial/{}/{}", exchange, host); }

/// What host 0 says of a trial: how far it is, and its contract.
std::string start_word(const SessionTrial& trial, const Contract& contract) {
  nlohmann::json word{{"step", trial.first_step},
                      {"contract", contract},
                      {"hosts.state", to_string(trial.team.state)}};
  if (trial.ended()) word["state"] = static_cast<int>(trial.result.state);
  return word.dump();
}

/// Why this host cannot train the trial with host 0; empty: it can.
std::string difference_from(const nlohmann::json& word, const SessionTrial& trial,
                            const Contract& own, int number) {
  const auto different = differences(word.at("contract").get<Contract>(), own);
  if (!different.empty()) {
    const ContractDifference& first = different.front();
    return fmt::format(
        "{}: is {} on host {} and {} on host 0; give both the same trial, data, "
        "version and kernels (numerics: portable), or leave host {} out",
        first.field, first.now.value_or("not set"), number, first.then.value_or("not set"), number);
  }
  const std::string state = to_string(trial.team.state);
  if (const auto of_host_0 = word.at("hosts.state").get<std::string>(); state != of_host_0) {
    return fmt::format(
        "hosts.state: is {} on host {} and {} on host 0; write the same on all hosts", state,
        number, of_host_0);
  }
  const auto step = word.at("step").get<std::int64_t>();
  if (step == trial.first_step) return "";
  return fmt::format(
      "checkpoint: host {} finds step {}, host 0 step {}; keep output_dir in a folder "
      "that all hosts share",
      number, trial.first_step, step);
}

}  // namespace

/// Throws ConfigError unless hosts can train the trial together.
void Session::Impl::require_trial_of_hosts(const TrialConfig& trial) const {
  if (!config.hosts.several()) return;
  const TrainConfig& train = trial.train;
  ConfigCheck check;
  check.require(trial.until == 0 || config.hosts.state == HostStateKind::replicated, "until",
                fmt::format("cannot be used with hosts.state: {}; leave it out",
                            to_string(config.hosts.state)));
  check.require(!train.strategy && train.strategies.empty(), "train.strategy", kNotWithHosts);
  check.require(train.lane_groups.empty(), "train.lane_groups", kNotWithHosts);
  check.require(train.autoscale.empty(), "train.autoscale", kNotWithHosts);
  check.require(
      train.reduction_groups >= config.hosts.size, "train.reduction_groups",
      fmt::format("is {}, but each of the {} hosts takes at least one; use fewer hosts, or "
                  "raise it or train.virtual_nodes, which changes the result",
                  train.reduction_groups, config.hosts.size));
  check.finish();
  const int own = groups_of_host(train, team_of(config.hosts));
  check.require(
      std::max(train.data_parallel, train.max_data_parallel) <= own, "train.data_parallel",
      fmt::format("is {}, but this host has {} of the {} reduction groups; use at most {}",
                  std::max(train.data_parallel, train.max_data_parallel), own,
                  train.reduction_groups, own));
  check.finish();
}

/// Opens the checkpoints of a trial, if it has some. Only host 0 and its successor write any.
TrialCheckpoints::Newest Session::Impl::open_checkpoints(JobId id, SessionTrial& trial) {
  if (!hosts) return store.open_checkpoints(id, trial);
  hosts->require_no_problem();
  const int number = hosts->number(), exchange = num_exchanges++;
  trial.exchange = exchange;
  if (number > 0) return join_trial(id, trial);
  auto newest = trial.ended() ? TrialCheckpoints::Newest() : store.open_checkpoints(id, trial);
  hosts->tell(key_of(exchange, 0), start_word(trial, store.contract(trial)));
  for (int peer = 1; peer < hosts->size(); ++peer) {
    const std::string problem = answer_of(peer, exchange);
    // When they may begin with fewer, that host leaves.
    if (!problem.empty() && config.hosts.start_size == 0) throw Error(problem);
  }
  return newest;
}

/// Why another host cannot train the trial. Empty: it can, or it is lost.
std::string Session::Impl::answer_of(int peer, int exchange) {
  try {
    return hosts->hear(key_of(exchange, peer), peer);
  } catch (const Error& error) {
    if (!hosts->problem().empty()) throw;
    if (config.hosts.start_size == 0 && hosts->present().contains(peer)) throw;
    hosts->drop(peer, error.what());
    return "";
  }
}

/// On another host than host 0, after its word.
TrialCheckpoints::Newest Session::Impl::join_trial(JobId id, SessionTrial& trial) {
  const auto word = nlohmann::json::parse(hosts->hear(key_of(trial.exchange, 0), 0));
  TrialCheckpoints::Newest newest;
  std::string problem;
  try {
    const bool resumes = word.at("step").get<std::int64_t>() > 0;
    trial.config.checkpoint.resume = resumes;
    if (word.contains("state")) {
      trial.result.state = static_cast<TrialState>(word.at("state").get<int>());
      trial.lifecycle.recall(trial.result.state);
    } else {
      TrialStore::take_over(trial, word.at("contract").get<Contract>());
      newest = store.open_checkpoints(id, trial);
      problem = difference_from(word, trial, store.contract(trial), hosts->number());
    }
  } catch (const std::exception& error) {
    problem = fmt::format("host {}: {}", hosts->number(), error.what());
  }
  if (trial.checkpoints) trial.checkpoints->close();
  trial.config.weights_file.clear();
  hosts->tell(key_of(trial.exchange, hosts->number()), problem);
  if (!problem.empty()) throw Error(problem);
  return newest;
}

void Session::Impl::exchange(const HostCall& call, const Ended& ended) {
  const SessionTrial& trial = trial_of_run(call.job);
  if (call.program->host_ops[at(call.op)].index == kLastState) {
    return serving->call([this, id = call.job, ended] { end_last_save(id, ended); });
  }
  trial.job->write_numbers(call, word_of(trial, call.step + 1));
  spillway::exchange(hosts->peers(), static_cast<std::uint64_t>(trial.exchange), call, ended);
}

/// The trials that hosts train together end here; the others may go on with them. `why`: for users.
void Session::Impl::leave_hosts(const std::string& why) {
  if (!hosts) return;
  const bool ends_run = hosts->number() == 0 && !hosts->next();
  if (ends_run) store.end_in_order();
  hosts->leave(why);
}

/// The trial has ended on this host, and the others cannot go on with it. `what`: "was stopped".
void Session::Impl::leave_others(const SessionTrial& trial, const std::string& what) {
  if (trial.exchange < 0 || hosts->present().size() == 1) return;
  leave_hosts(fmt::format("trial {} {}", trial.config.name, what));
}

/// Whether the trial is in the run, has not ended, and hosts train it together.
bool Session::Impl::trains_on_hosts(JobId id) const {
  return is_in_run(id) && trial(id).exchange >= 0 && !trial(id).ended();
}

/// All trials of the run stop. Those that begin later stop at once, see bring().
void Session::Impl::on_hosts_ended() {
  serving->stop_all();
  serving->call([this] {
    if (!hosts->next()) return hosts->abandon();
    // Hosts that go on together still have words to send. What host 0 has not taken is not needed.
    std::int64_t next_epoch = 0;
    {
      const MutexLock lock(mutex);
      next_epoch = ++epoch;
    }
    hosts->peers().begin_epoch(static_cast<std::uint64_t>(next_epoch));
  });
}

void Session::Impl::on_host_lost(int lost, const std::string& why) {
  events.add({.time_s = now_s(), .kind = SessionEvent::Kind::lost, .host = lost, .reason = why});
}

/// In a round all trials rest at their last commit. If they have shadows, it is saved then.
void Session::Impl::on_guest() {
  serving->call([this] {
    const MutexLock lock(mutex);
    if (after_saving != AfterSaving::nothing) return;
    const bool is_shadowed = config.hosts.state == HostStateKind::shadowed && most_hosts() > 0;
    if (is_shadowed) must_restart = true;
    if (is_shadowed || !save_before(AfterSaving::invite)) hosts->renew();
  });
}

void Session::Impl::on_round(std::int64_t called) {
  serving->call([this, called] {
    const MutexLock lock(mutex);
    begin_round(called);
  });
}

/// Transfers that are open end once the engine knows, so that it begins none in the new round.
void Session::Impl::begin_round(std::int64_t called) {
  round = called;
  rescue.reset();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (trains_on_hosts(JobId(t))) shell->interrupt(JobId(t));
  }
  drop_state();
  shell->call([this, called] {
    hosts->peers().begin_epoch(static_cast<std::uint64_t>(called));
    const MutexLock lock(mutex);
    epoch = called;
    rest_if_all_do();
  });
}

void Session::Impl::on_interrupted(const JobInterrupted& interrupted) {
  const MutexLock lock(mutex);
  SessionTrial& rests = trial(interrupted.job);
  rests.interrupted_at = std::max(interrupted.step, rests.result.steps);  // see commit_late()
  round > 0 ? rest_if_all_do() : hosts->renew();
}

RestingJobs Session::Impl::resting_jobs() const {
  RestingJobs jobs{.must_restart = must_restart};
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!is_in_run(JobId(t)) || trials[t]->exchange < 0) continue;
    jobs.begun = trials[t]->exchange + 1;
    if (!trials[t]->ended()) jobs.steps[trials[t]->exchange] = trials[t]->interrupted_at.value();
  }
  return jobs;
}

/// Tells the other hosts once all trials rest.
void Session::Impl::rest_if_all_do() {
  if (round == 0 || epoch != round) return;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (trains_on_hosts(JobId(t)) && !trials[t]->interrupted_at) return;
  }
  hosts->rest(round, resting_jobs());
}

void Session::Impl::on_agreed(const Agreement& agreement) {
  serving->call([this, agreement] {
    const MutexLock lock(mutex);
    go_on(agreement);
  });
}

/// A trial of which this host has made a step that others lack waits for them. If host 0 is lost,
/// all wait for its successor. If there are guests, all trials end, to go on in new sessions.
void Session::Impl::go_on(const Agreement& agreement) {
  round = 0;
  prepare_rescue(agreement);
  if (hosts->needs_successor()) {
    // Unless a host is ahead, none has made a step.
    if (!has_progress() && agreement.ahead.empty()) return hosts->give_up_host_0();
    if (!first_host_lost_s) first_host_lost_s = now_s();
    if (!hosts->is_successor()) return rescue_trials();
    if (!std::exchange(takes_over, true)) return take_over();
    if (run_lock) end_as_successor();
    return;
  }
  const int most = most_hosts();
  if (most > 0 && lacks_state(agreement)) {
    return rescue ? rescue_trials() : restart_from_checkpoint();
  }
  const bool waits = after_saving == AfterSaving::invite || must_restart;  // guests come after it
  if (hosts->number() == 0 && most > 0 && !waits && hosts->admit_guests(most)) {
    invites = true;
    store.keep_mark();
    return shell->stop_all();
  }
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!trains_on_hosts(JobId(t))) continue;
    SessionTrial& trial = *trials[t];
    const auto computing = agreement.computing.find(trial.exchange);
    if (computing == agreement.computing.end()) {  // it has begun since
      if (trial.interrupted_at) hosts->renew();
      continue;
    }
    if (!computing->second.contains(hosts->number())) continue;
    trial.team.hosts = computing->second;
    go_on(JobId(t), agreement.ahead.contains(trial.exchange));
  }
  go_on_after_saving();
  if (must_restart) hosts->renew();  // the others have not heard of it
}

/// For the trials that train now, of which each host takes a reduction group. 0: none trains.
int Session::Impl::most_hosts() const {
  int most = 0;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!trains_on_hosts(JobId(t))) continue;
    const int groups = reduction_groups_of(trials[t]->config.train);
    most = most == 0 ? groups : std::min(most, groups);
  }
  return most;
}

/// Its team is known. `is_behind`: other hosts wait for its next step. Without a plan it waits for
/// a device, see renew_if_interrupted(), or fails.
void Session::Impl::go_on(JobId id, bool is_behind) {
  SessionTrial& goes_on = trial(id);
  const std::size_t num = goes_on.team.hosts.size();
  auto plan = planner.best_plan(goes_on, goes_on.lanes.requested, goes_on.lanes.avoided);
  if (!plan) {
    if (config.wait_for_devices || devices.any_joining()) return;
    return shell->fail(id, fmt::format("its part of each step does not fit the devices of this "
                                       "host, now that {} of {} hosts compute it",
                                       num, config.hosts.size));
  }
  goes_on.interrupted_at.reset();
  goes_on.lanes.reason = fmt::format("{} of {} hosts compute it", num, config.hosts.size);
  goes_on.plan = plan;
  shell->go_on(id, std::move(plan), is_behind);
}

/// Whether this host has something to save. Before the first step, host 0 may not even have the
/// folder.
bool Session::Impl::has_progress() const {
  return std::ranges::any_of(trials, [](const auto& trial) {
    return trial->exchange >= 0 && trial->result.steps > trial->first_step;
  });
}

/// If host 0 is gone, takes its place. It takes some time until the system releases the lock of a
/// machine that is lost.
void Session::Impl::take_over() {
  constexpr std::chrono::milliseconds kRetry(100);
  if (!hosts->problem().empty()) return;
  std::string why = kHost0Stopped;
  const auto cannot = [&](const std::exception& error) {
    why = fmt::format("host 0 is lost, and no other can take its place: {}", error.what());
  };
  try {
    RunLock lock(config.hosts.run_folder);
    if (lock.follows_crash()) {
      lock.keep_mark();  // until this host has resumed the run
      for (const auto& trial : trials) {
        if (!trial->checkpoints || trial->ended()) continue;
        // This host may have been frozen while others went on.
        const auto newest = trial->checkpoints->newest_step();
        if (newest.value_or(-1) <= trial->result.steps) trial->checkpoints->open();
      }
      run_lock.emplace(std::move(lock));
      return end_as_successor();
    }
  } catch (const InUse& error) {
    if (now_s() < *first_host_lost_s + config.hosts.timeout_s) {
      return shell->call_after(kRetry, [this] {
        const MutexLock call_lock(mutex);
        take_over();
      });
    }
    cannot(error);
  } catch (const std::exception& error) {
    cannot(error);
  }
  leave_hosts(fmt::format("{}; {}", why, kRestart));
}

/// Ends all trials, which saves replicated state. Shadowed state is saved before.
void Session::Impl::end_as_successor() {
  if (round > 0) return;  // go_on() calls it again
  rescue ? rescue_trials() : shell->stop_all();
}

/// A trial that could not go on may fit the devices that are there now.
void Session::Impl::renew_if_interrupted() {
  if (!hosts || round > 0 || rescue) return;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (trains_on_hosts(JobId(t)) && trials[t]->interrupted_at) return hosts->renew();
  }
}

/// An op has thrown. The other hosts hear of it at once, because exchanges that are under way here
/// may wait for them. All hosts fail together at a commit.
void Session::Impl::fail_on_hosts(JobId id, const std::string& reason) {
  const SessionTrial& trial = trial_of_run(id);
  if (trial.exchange < 0 || trial.job->failed_to_commit()) return;
  serving->fail(id, reason);
  leave_others(trial, fmt::format("has failed: {}", reason));
}

/// Throws Error if several hosts train the trial, which would then get different ones.
void Session::Impl::require_alone(const SessionTrial& trial, const char* what) {
  if (trial.exchange < 0) return;
  throw Error(fmt::format("hosts train trial {} together, or others may join; it cannot be {}",
                          trial.config.name, what));
}

/// Whether all that hosts began together has come to the same end on all, so that they part in
/// peace.
bool Session::Impl::has_trained_with_hosts() const {
  const auto is_shared = [](const auto& trial) { return trial->exchange >= 0; };
  return std::ranges::any_of(trials, is_shared) &&
         std::ranges::all_of(trials, [&](const auto& trial) {
           return !is_shared(trial) || trial->result.state == TrialState::done ||
                  (trial->job && trial->job->failed_to_commit());
         });
}

std::optional<HostsConfig> Session::next_hosts() const {
  return impl_->hosts ? impl_->hosts->next() : std::nullopt;
}

void Session::announce_trials(const std::vector<std::string>& client_ids) {
  const bool decides = impl_->hosts && impl_->hosts->number() == 0;
  if (decides) impl_->hosts->tell("trials", nlohmann::json(client_ids).dump());
}

std::vector<std::string> Session::announced_trials() const {
  if (!impl_->hosts) throw Error("this session trains alone; set hosts.size and hosts.endpoint");
  return nlohmann::json::parse(impl_->hosts->hear("trials", 0)).get<std::vector<std::string>>();
}

}  // namespace spillway
