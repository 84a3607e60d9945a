#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/base/default_floats.h"
#include "trainer/config/host_groups.h"
#include "trainer/session/session_impl.h"

/// A run begins, takes in trials, and ends. The engine has a thread of its own.
namespace spillway {

/// Begins a run with all trials that have not ended, unless there is one.
void Session::Impl::begin_run() {
  if (config.estimate)
    throw Error("a session with estimated costs can only plan; set estimate = false to train");
  require_endpoint(config.hosts);
  const MutexLock lock(mutex);
  idle.wait(mutex, [this]() SPILLWAY_REQUIRES(mutex) { return run_phase != RunPhase::closing; });
  if (has_run()) return;
  join();
  require_room_at_rungs();
  std::vector<Device*> all_devices;
  for (std::size_t d = 0; d < devices.size(); ++d) all_devices.push_back(devices[d].device.get());
  for (const auto& trial : trials) {
    if (!trial->ended()) keep_checkpoints(*trial);
  }
  run_begin_s = now_s();
  run_error = nullptr;
  trace = TraceRecorder(config.max_trace_spans);
  controller = make_controller();
  deciding = deciding_rungs = false;
  shell = std::make_unique<Shell>(engine_config(), all_devices, host, pool, *this, *this, &trace,
                                  ShellOptions{.patience = {.least_s = config.device_timeout_s},
                                               .touched = touched_at_start(),
                                               .gone = devices.gone(),
                                               .links = LinkTable(config.links)});
  serving = shell.get();
  for (std::size_t t = 0; t < trials.size(); ++t) bring(JobId(t));
  if (hosts) hosts->attach(*this);
  decide_rungs();
  if (!devices.gone().empty()) {
    shell->call([this] {
      const MutexLock call_lock(mutex);
      refit_all();
    });
  }
  if (std::exchange(run_phase, RunPhase::until_ended) == RunPhase::stopped) stop_all();
  engine_thread = std::thread([this] { serve(*serving); });
}

/// Of several hosts, host 0 alone writes checkpoints.
void Session::Impl::keep_checkpoints(const SessionTrial& trial) const {
  if (trial.checkpoints && (!hosts || hosts->number() == 0)) trial.checkpoints->open();
}

/// Submits a trial to the engine, on its thread. One that has ended takes only its number.
void Session::Impl::bring(JobId id) {
  num_in_run = id.index() + 1;
  SessionTrial& comes = trial(id);
  const Bytes home_bytes = comes.planned.summary.home_bytes;
  std::shared_ptr<const JobPlan> plan;
  JobStart begin;
  if (!comes.ended()) {
    plan = comes.plan;
    if (plan->layout.is_sharded()) share_state(comes);
    begin = controller->start(id);
    note_rungs(id);
    update_phase(id);
  }
  shell->call(
      [to = shell.get(), id, plan, home_bytes, begin] { to->submit(id, plan, home_bytes, begin); });
  if (comes.exchange < 0) return;
  if (!hosts->problem().empty()) shell->stop(id);
  const bool are_all_present = hosts->present().size() == static_cast<std::size_t>(hosts->size());
  if (round > 0 || !are_all_present) shell->interrupt(id);  // its plan is for all hosts
}

/// If there is a run, a trial that was just added takes part in it.
void Session::Impl::join_run(JobId id) {
  if (!takes_trials()) return;
  SessionTrial& comes = trial(id);
  if (!comes.ended()) {  // make_controller() has entered the others, from the journal
    keep_checkpoints(comes);
    enter(*controller, id, {});
  }
  bring(id);
  decide_rungs();
}

/// The engine's thread.
void Session::Impl::serve(Shell& run) {
  const DefaultFloats floats;  // sums of losses
  std::exception_ptr error;
  std::string failure;
  try {
    run.serve();
  } catch (...) {
    error = std::current_exception();
    failure = fmt::format("the run failed: {}", current_reason());
  }
  try {
    end_run(failure);
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  const MutexLock lock(mutex);
  run_error = error;
  run_phase = RunPhase::none;
  idle.notify_all();
}

/// `failure`: why the shell ended before some trials did; empty: all have ended.
void Session::Impl::end_run(const std::string& failure) {
  std::unique_ptr<Shell> ended;
  {
    const MutexLock lock(mutex);
    run_phase = RunPhase::closing;
    final_snapshot = shell->snapshot();
    run_s = now_s() - run_begin_s;
    ended = std::move(shell);
    controller.reset();
  }
  bool leads_on = false;
  if (hosts) {
    const MutexLock lock(mutex);
    round = 0;
    after_saving = AfterSaving::nothing;
    rescue.reset();
    hosts->detach(failure.empty() ? resting_jobs() : RestingJobs());
    must_restart = false;
    leads_on = run_lock || invites;
  }
  if (!failure.empty()) leave_hosts(failure);
  if (leads_on) hosts->announce_next();
  ended.reset();  // without the lock, which what it waits for may take
  const MutexLock lock(mutex);
  run_lock.reset();
  devices.settle();
  num_in_run = 0;
  for (std::size_t t = 0; !failure.empty() && t < trials.size(); ++t) {
    if (!trials[t]->ended()) end(JobId(t), TrialPhase::stopped, failure);
  }
}

/// The thread of the run before; it has nothing left to do.
void Session::Impl::join() {
  if (engine_thread.joinable()) engine_thread.join();
}

/// The run accepts no further trial: one that comes now is for the next run.
void Session::Impl::close_run() {
  run_phase = RunPhase::closing;
  shell->close();
}

/// Waits for the end of a run that is closing. Throws what ended it, if anything did.
void Session::Impl::wait_for_end() {
  {
    const MutexLock lock(mutex);
    idle.wait(mutex, [this]() SPILLWAY_REQUIRES(mutex) { return !has_run(); });
    join();
    if (const auto error = std::exchange(run_error, nullptr)) std::rethrow_exception(error);
  }
  store.flush();
}

bool Session::Impl::all_ended() const {
  return std::ranges::all_of(trials, [](const auto& trial) { return trial->ended(); });
}

/// Whether no trial can go on without a call of the user.
bool Session::Impl::is_idle() const {
  if (deciding || deciding_rungs) return false;
  const JobId first_waiting = shell ? shell->snapshot().first_waiting : JobId();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const SessionTrial& waits = *trials[t];
    if (waits.ended() || waits.is_paused()) continue;
    const TrialPhase phase = waits.lifecycle.phase();
    const bool for_memory = phase == TrialPhase::submitted && JobId(t) >= first_waiting;
    const bool for_others = phase == TrialPhase::paused || phase == TrialPhase::at_rung;
    if (waits.request == TrialRequest::stop || !(for_memory || for_others)) return false;
  }
  return true;
}

/// Waits until `done`, no trial can go on, or there is no run.
template <typename Done>
void Session::Impl::wait_for(const Done& done) {
  idle.wait(mutex, [&]() SPILLWAY_REQUIRES(mutex) { return is_over({}) || done(); });
}

void Session::Impl::stop_all() {
  controller->stop();
  shell->stop_all();
  if (!all_ended()) leave_hosts("the session was stopped");
  for (const auto& trial : trials) {
    if (!trial->ended()) trial->request = TrialRequest::stop;
  }
}

void Session::start() {
  const MutexLock submitting(impl_->submitting);
  impl_->begin_run();
  const MutexLock lock(impl_->mutex);
  if (impl_->run_phase == RunPhase::until_ended) impl_->run_phase = RunPhase::open;
}

/// Begins a run unless there is one, and ends it if all trials have ended and it need not stay
/// open.
template <typename Done>
void Session::Impl::run_until(const Done& done) {
  {
    const MutexLock submitting_lock(submitting);
    begin_run();
  }
  {
    const MutexLock lock(mutex);
    wait_for(done);
    const bool closes = run_phase == RunPhase::until_ended && all_ended();
    if (closes) close_run();
    if (takes_trials()) return;
  }
  wait_for_end();
}

void Session::Impl::run_until_ended(JobId id) {
  const SessionTrial& waited = trial_of_run(id);
  run_until([&] { return waited.ended(); });
}

void Session::run() {
  impl_->run_until([] { return false; });
}

void Session::wait() {
  const MutexLock lock(impl_->mutex);
  impl_->wait_for([] { return false; });
  if (impl_->run_error) std::rethrow_exception(impl_->run_error);
}

TrialState Session::wait(JobId id) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  const SessionTrial& waited = impl.known_trial(id);
  impl.idle.wait(impl.mutex, [&]() SPILLWAY_REQUIRES(impl.mutex) { return impl.is_over(id); });
  if (impl.run_error) std::rethrow_exception(impl.run_error);
  return waited.result.state;
}

/// Whether nothing is left to wait for.
bool Session::Impl::is_over(std::optional<JobId> id) const {
  if (!has_run() || is_idle()) return true;
  return id && (trial(*id).ended() || trial(*id).is_paused());
}

bool Session::wait_for(double seconds, std::optional<JobId> id) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  if (id) impl.known_trial(*id);
  const bool over =
      impl.idle.wait_for(impl.mutex, std::chrono::duration<double>(seconds),
                         [&]() SPILLWAY_REQUIRES(impl.mutex) { return impl.is_over(id); });
  if (over && impl.run_error) std::rethrow_exception(impl.run_error);
  return over;
}

void Session::finish() {
  Impl& impl = *impl_;
  {
    const MutexLock lock(impl.mutex);
    impl.wait_for([] { return false; });
    if (impl.takes_trials()) {
      impl.stop_all();
      impl.close_run();
    }
  }
  impl.wait_for_end();
}

Session::~Session() {
  if (!impl_) return;
  try {
    stop();
    finish();
  } catch (...) {  // nobody is left to be told
  }
  const MutexLock lock(impl_->mutex);
  if (!impl_->has_trained_with_hosts()) impl_->leave_hosts("the session has ended");
}

void Session::stop() {
  const MutexLock lock(impl_->mutex);
  impl_->invites = false;
  if (impl_->takes_trials()) {
    if (!impl_->save_before(AfterSaving::stop)) impl_->stop_all();
    return;
  }
  if (!impl_->has_run()) impl_->run_phase = RunPhase::stopped;
}

}  // namespace spillway
