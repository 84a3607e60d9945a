#pragma once

#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "scheduler/elastic/run_controller.h"
#include "scheduler/engine/policy.h"
#include "scheduler/engine/trace_recorder.h"
#include "scheduler/simulation/shortened_run.h"
#include "scheduler/simulation/virtual_shell.h"
#include "spillway/session.h"
#include "spillway/weights.h"
#include "trainer/compute/tbb_pool.h"
#include "trainer/hosts/hosts.h"
#include "trainer/profile/pilot.h"
#include "trainer/runtime/shell.h"
#include "trainer/session/device_list.h"
#include "trainer/session/event_list.h"
#include "trainer/session/planner.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/kernel_flags.h"
#include "trainer/trial/session_trial.h"
#include "trainer/trial/trial_store.h"

/// Inside Session; nothing else includes it.
namespace spillway {

/// none -> until_ended (-> open) -> closing -> none; a call of stop() between runs: none ->
/// stopped.
enum class RunPhase : std::uint8_t {
  none,
  stopped,      ///< no run; the next one stops its trials at once
  until_ended,  ///< by run(): closes once all trials have ended
  open,         ///< by start(): takes in trials until finish()
  closing       ///< takes in no further trial
};

/// What host 0 does once all trials have been saved that hosts train with sharded state.
enum class AfterSaving : std::uint8_t {
  nothing,
  stop,    ///< Session::stop()
  invite,  ///< hosts ask to take part
};

/// After a loss, hosts that shadow each other's state make a checkpoint of the last step.
struct Rescue {
  struct Trial {
    StateRoute route;
    bool is_behind = false;       ///< this host has not committed the last step, though others have
    bool is_being_saved = false;  ///< this host saves or sends its state
    std::shared_ptr<std::promise<std::vector<std::byte>>> numbers;  ///< with which it can commit
    std::future<std::vector<std::byte>> coming;                     ///< those numbers
  };
  Agreement agreement;
  int reader = 0;  ///< the host that saves
  std::map<JobId, Trial> trials;
  bool has_begun = false;
};

/// Throws ConfigError.
void require_valid(const EarlyTerminate& early);

/// Connects what a session consists of: the shell reports events, the controller decides, the shell
/// carries out the decisions; the store and the list of events are informed.
struct Session::Impl final : ShellObserver, OpRunner, HostsObserver {
  explicit Impl(SessionConfig session_config);

  // session_ops.cpp: calls go to the trial they belong to. Threads of devices and the pool.
  void admit(JobId id, const Home& home) override;
  std::shared_ptr<std::byte> find(JobId id, const SharedBlock& block) override;
  Keep run_op(const OpCall& call) override;
  void run_host_op(const HostCall& call) override;
  void exchange(const HostCall& call, const Ended& ended) override;
  void release(JobId id, JobEnd job_end) override;
  void warm(Device& device) override;
  void save_last(JobId id);

  // session_events.cpp: what the shell reports, on its thread
  void on_started(JobId id) override;
  void on_committed(const StepCommitted& committed) override;
  void on_rested(const JobRested& rested) override;
  void on_interrupted(const JobInterrupted& interrupted) override;
  void on_redone(JobId id, std::int64_t step) override;
  void on_resized(JobId id, const JobPlan& plan) override;
  void on_ended(JobId id, JobEnd job_end, const std::string& reason) override;
  void on_device_joined(DeviceId id) override;
  void on_device_left(DeviceId id, bool lost, const std::string& why) override;

  // session_events.cpp: what users see
  void refresh(JobId id, std::int64_t step) SPILLWAY_REQUIRES(mutex);
  static void copy_losses(SessionTrial& trial);  ///< from the history to the result
  void save_if_due(JobId id) SPILLWAY_REQUIRES(mutex);
  void save_at_rest(JobId id) SPILLWAY_REQUIRES(mutex);
  TrialPhase live_phase(JobId id) const SPILLWAY_REQUIRES(mutex);
  void update_phase(JobId id) SPILLWAY_REQUIRES(mutex);
  void show_phase(JobId id) SPILLWAY_REQUIRES(mutex);
  void end(JobId id, TrialPhase phase, const std::string& reason) SPILLWAY_REQUIRES(mutex);
  void set_state(JobId id, TrialState state, const std::string& reason) SPILLWAY_REQUIRES(mutex);
  SessionEvent event_of(JobId id, SessionEvent::Kind kind) const SPILLWAY_REQUIRES(mutex);
  void add_event(JobId id, SessionEvent::Kind kind) SPILLWAY_REQUIRES(mutex);
  void add_event(DeviceId id, SessionEvent::Kind kind, const std::string& reason);
  void add_damage(JobId id, std::int64_t step, const std::vector<Finding>& findings);
  void on_saved(JobId id, const TrialCheckpoints::Saved& saved);

  // session_devices.cpp: lanes and devices change
  std::map<std::string, std::vector<LayerTimes>> measure_kinds(const Model& model);
  void refit(JobId id) SPILLWAY_REQUIRES(mutex);
  void refit_all() SPILLWAY_REQUIRES(mutex);
  void change_plan(JobId id, std::shared_ptr<const JobPlan> plan) SPILLWAY_REQUIRES(mutex);
  Bytes touched_at_start() const SPILLWAY_REQUIRES(mutex);
  void join(DeviceList::Entry& entry) SPILLWAY_REQUIRES(mutex);
  void rejoin_if_shrunk(DeviceId id) SPILLWAY_REQUIRES(mutex);

  // session_controller.cpp: how many lanes a trial has, and which trials go on at a rung
  void choose_lanes(SessionTrial& trial) const SPILLWAY_REQUIRES(mutex);
  LaneDemand demand(JobId id) const SPILLWAY_REQUIRES(mutex);
  std::optional<Rungs> rungs(const RunLength& length = {}) const;
  RungLosses rung_losses(const SessionTrial& trial) const;
  void require_comparable(const SessionTrial& trial) const;
  void require_same_state(const SessionTrial& trial) const SPILLWAY_REQUIRES(mutex);
  RunController make_controller(const RunLength& length = {}) const SPILLWAY_REQUIRES(mutex);
  void require_room_at_rungs(Bytes more = 0) const SPILLWAY_REQUIRES(mutex);
  void enter(RunController& run, JobId id, const RunLength& length) const SPILLWAY_REQUIRES(mutex);
  void note_rungs(JobId id) SPILLWAY_REQUIRES(mutex);
  void decide_rungs() SPILLWAY_REQUIRES(mutex);
  void note_devices() SPILLWAY_REQUIRES(mutex);
  void decide_if_due() SPILLWAY_REQUIRES(mutex);
  void carry_out(const RunCommands& commands) SPILLWAY_REQUIRES(mutex);
  void carry_out(const PauseJob& pause) SPILLWAY_REQUIRES(mutex) { shell->pause(pause.job); }
  void carry_out(const ResumeJob& resume) SPILLWAY_REQUIRES(mutex) { shell->resume(resume.job); }
  void carry_out(const ResizeJob& resize) SPILLWAY_REQUIRES(mutex);
  void carry_out(const HoldJob& hold) SPILLWAY_REQUIRES(mutex) { shell->hold(hold.job, hold.hold); }
  void carry_out(const SuspendJob& suspend) SPILLWAY_REQUIRES(mutex) {
    shell->suspend(suspend.job, suspend.suspended);
  }
  void carry_out(const TakeState& take) SPILLWAY_REQUIRES(mutex);
  void carry_out(const PassRung& pass) SPILLWAY_REQUIRES(mutex);
  void carry_out(const StopAtRung& stop) SPILLWAY_REQUIRES(mutex);

  // session_submit.cpp: a trial comes
  std::optional<JobId> find_trial(const std::string& client_id) const;  ///< the latest
  bool continues(const SessionTrial& trial, JobId known) const;
  void measure_costs_of(SessionTrial& trial);
  void plan(SessionTrial& trial) const SPILLWAY_REQUIRES(mutex);
  void require_room_on_disk(SessionTrial& trial) const SPILLWAY_REQUIRES(mutex);
  void continue_from(SessionTrial& trial, Generation generation) const;
  std::unique_ptr<SessionTrial> make_trial(TrialConfig trial) const;
  void check_sizes_of(const SessionTrial& trial) const SPILLWAY_REQUIRES(mutex);
  void check(std::vector<std::unique_ptr<SessionTrial>> checked)
      SPILLWAY_REQUIRES(mutex, submitting);
  JobId submit(TrialConfig trial, const std::string& origin) SPILLWAY_EXCLUDES(submitting);
  JobId add(std::unique_ptr<SessionTrial> trial) SPILLWAY_REQUIRES(mutex);
  JobId submit_evaluation(TrialConfig evaluation, bool predicts);

  // session_hosts.cpp: trials that several hosts train together
  void require_trial_of_hosts(const TrialConfig& trial) const;
  TrialCheckpoints::Newest open_checkpoints(JobId id, SessionTrial& trial)
      SPILLWAY_REQUIRES(submitting);
  TrialCheckpoints::Newest join_trial(JobId id, SessionTrial& trial);
  void on_host_lost(int lost, const std::string& why) override;
  void on_round(std::int64_t round) override;
  void on_agreed(const Agreement& agreement) override;
  void on_hosts_ended() override;
  void on_guest() override;
  // session_sharded.cpp: those whose state hosts shard
  static int word_of(const SessionTrial& trial, std::int64_t step);
  void share_state(SessionTrial& trial) const;
  void hear_words(JobId id) SPILLWAY_REQUIRES(mutex);
  static void send_state(const SessionTrial& trial, std::int64_t step);
  void save_with_hosts(JobId id, std::int64_t step, std::int64_t committed_in)
      SPILLWAY_REQUIRES(mutex);
  void note_saved(JobId id, std::int64_t step, bool has_failed) SPILLWAY_REQUIRES(mutex);
  void end_last_save(JobId id, const Ended& ended) SPILLWAY_EXCLUDES(mutex);
  void hand_out_weights(JobId id, const Ended& ended);
  void require_unchanged_files(JobId id);
  void drop_state() const SPILLWAY_REQUIRES(mutex);
  bool save_before(AfterSaving what) SPILLWAY_REQUIRES(mutex);
  bool has_next_step(JobId id) const SPILLWAY_REQUIRES(mutex);
  void go_on_after_saving() SPILLWAY_REQUIRES(mutex);
  bool lacks_state(const Agreement& agreement) const SPILLWAY_REQUIRES(mutex);
  void restart_from_checkpoint() SPILLWAY_REQUIRES(mutex);
  // session_rescue.cpp: what is shadowed is saved after a loss
  void prepare_rescue(const Agreement& agreement) SPILLWAY_REQUIRES(mutex);
  void rescue_trials() SPILLWAY_REQUIRES(mutex);
  void exchange_numbers(JobId id, Rescue::Trial& rescued) SPILLWAY_REQUIRES(mutex);
  void go_on_rescuing(std::int64_t in_round) SPILLWAY_REQUIRES(mutex);
  bool go_on_rescuing(JobId id, Rescue::Trial& rescued) SPILLWAY_REQUIRES(mutex);
  void commit_late(JobId id, const std::vector<std::byte>& numbers) SPILLWAY_REQUIRES(mutex);
  void save_rescued(JobId id, const StateRoute& route) SPILLWAY_REQUIRES(mutex);

  std::string answer_of(int peer, int exchange);
  bool trains_on_hosts(JobId id) const SPILLWAY_REQUIRES(mutex);
  void begin_round(std::int64_t round) SPILLWAY_REQUIRES(mutex);
  RestingJobs resting_jobs() const SPILLWAY_REQUIRES(mutex);
  void rest_if_all_do() SPILLWAY_REQUIRES(mutex);
  void go_on(const Agreement& agreement) SPILLWAY_REQUIRES(mutex);
  void go_on(JobId id, bool is_behind) SPILLWAY_REQUIRES(mutex);
  int most_hosts() const SPILLWAY_REQUIRES(mutex);
  bool has_progress() const SPILLWAY_REQUIRES(mutex);
  void take_over() SPILLWAY_REQUIRES(mutex);
  void end_as_successor() SPILLWAY_REQUIRES(mutex);
  void renew_if_interrupted() SPILLWAY_REQUIRES(mutex);
  void leave_hosts(const std::string& why);
  void leave_others(const SessionTrial& trial, const std::string& what);
  void fail_on_hosts(JobId id, const std::string& reason);
  template <typename Work>
  auto or_fail_on_hosts(JobId id, const Work& work);
  bool has_trained_with_hosts() const SPILLWAY_REQUIRES(mutex);
  static void require_alone(const SessionTrial& trial, const char* what);

  // session_calls.cpp: calls about one trial
  SessionTrial& known_trial(JobId id) const SPILLWAY_REQUIRES(mutex);
  static std::int64_t require_until(const TrainConfig& train, std::int64_t until);
  TrainChange change(JobId id, const TrainValues& values, const std::string& reason)
      SPILLWAY_REQUIRES(mutex);
  void carry_out_for(JobId id, const RunCommands& commands) SPILLWAY_REQUIRES(mutex);

  // session_clone.cpp
  TrialConfig config_of_clone(const SessionTrial& source, const CloneChanges& changes) const
      SPILLWAY_REQUIRES(mutex);
  void save_for_clone(JobId id, const std::shared_ptr<std::promise<void>>& saved, bool is_mine);
  void save_newest(JobId id);

  // session_evaluate.cpp: a trial on other data
  struct Evaluated;
  TrialConfig config_of(JobId id) const;
  Evaluated run_evaluation(TrialConfig evaluation, bool predicts);
  Evaluation evaluate(const TrialConfig& trial, std::vector<NamedTensor> weights,
                      const std::shared_ptr<const DataSource>& data);

  // session_run.cpp: a run begins, takes in trials, and ends
  void begin_run() SPILLWAY_REQUIRES(submitting);
  template <typename Done>
  void run_until(const Done& done);
  void run_until_ended(JobId id);
  void keep_checkpoints(const SessionTrial& trial) const;
  void bring(JobId id) SPILLWAY_REQUIRES(mutex);
  void join_run(JobId id) SPILLWAY_REQUIRES(mutex);
  void serve(Shell& run);
  void end_run(const std::string& failure);
  void join() SPILLWAY_REQUIRES(mutex);
  void stop_all() SPILLWAY_REQUIRES(mutex);
  void close_run() SPILLWAY_REQUIRES(mutex);
  void wait_for_end();
  bool all_ended() const SPILLWAY_REQUIRES(mutex);
  bool has_run() const SPILLWAY_REQUIRES(mutex) { return run_phase >= RunPhase::until_ended; }
  bool takes_trials() const SPILLWAY_REQUIRES(mutex) {
    return has_run() && run_phase != RunPhase::closing;
  }
  bool is_in_run(JobId id) const SPILLWAY_REQUIRES(mutex) { return id.index() < num_in_run; }
  bool is_idle() const SPILLWAY_REQUIRES(mutex);
  template <typename Done>
  void wait_for(const Done& done) SPILLWAY_REQUIRES(mutex);
  bool is_over(std::optional<JobId> id) const SPILLWAY_REQUIRES(mutex);

  // session.cpp: results
  double now_s() const;
  EngineConfig engine_config() const SPILLWAY_REQUIRES(mutex);
  RunResult summarise(const EngineSnapshot& snapshot, double wall_s) const SPILLWAY_REQUIRES(mutex);

  // session_search.cpp: steps of one trial, simulated
  EngineConfig present_engine() const SPILLWAY_REQUIRES(mutex);
  std::optional<StepCost> price(const SessionTrial& trial, const TrialConfig& priced,
                                const VirtualCosts& costs) const SPILLWAY_REQUIRES(mutex);
  void predict_speed(SessionTrial& trial) const SPILLWAY_REQUIRES(mutex);

  // session_state.cpp
  std::optional<Shell::Status> status();
  SessionState state(const Shell::Status& status) const SPILLWAY_REQUIRES(mutex);

  // session_simulate.cpp
  static int num_host_workers();
  const SessionTrial* first_planned() const SPILLWAY_REQUIRES(mutex);
  Contention measure_contention() SPILLWAY_REQUIRES(mutex);
  std::vector<double> measure_op_starts(const SessionTrial& trial) SPILLWAY_REQUIRES(mutex);
  VirtualCosts known_costs(const SessionTrial* trial) const SPILLWAY_REQUIRES(mutex);
  VirtualCosts measure_costs() SPILLWAY_REQUIRES(mutex);
  RunTotals simulate(const VirtualCosts& costs, const RunLength& length,
                     std::vector<TraceSpan>& spans) const SPILLWAY_REQUIRES(mutex);

  SessionTrial& trial(JobId id) const SPILLWAY_REQUIRES(mutex) { return *trials[id.index()]; }
  /// For what does not change during a run, as SessionTrial says.
  SessionTrial& trial_of_run(JobId id) const {
    const MutexLock lock(roster_mutex);
    return *roster[id.index()];
  }

  const KeptMemory kept_memory;  ///< first: the last to go
  std::optional<ReproducibleGpuKernels> gpu_kernels;
  SessionConfig config;
  const std::shared_ptr<const Policy> policy;
  const std::shared_ptr<const Allocator> allocator;  // null: nothing is shared
  Mutex cloning;     ///< one clone at a time; locked before `submitting`
  Mutex submitting;  ///< one trial at a time; locked before `mutex`
  Mutex setting;     ///< one change at a time; locked before `mutex`
  mutable Mutex mutex;
  DeviceList devices SPILLWAY_GUARDED_BY(mutex);
  const Planner planner SPILLWAY_GUARDED_BY(mutex){config, devices};
  const std::unique_ptr<Store> home_store;
  HostArena host;
  Pilot pilot;
  const std::unique_ptr<Hosts> hosts;                     ///< null: it stays alone, or only plans
  int num_exchanges SPILLWAY_GUARDED_BY(submitting) = 0;  ///< trials that hosts began together
  /// The round for which all trials that hosts train together have to rest; 0: none.
  std::int64_t round SPILLWAY_GUARDED_BY(mutex) = 0;
  std::int64_t epoch SPILLWAY_GUARDED_BY(mutex) = 0;  ///< round to which transfers belong
  std::optional<double> first_host_lost_s SPILLWAY_GUARDED_BY(mutex);  ///< on the run's clock
  bool takes_over SPILLWAY_GUARDED_BY(mutex) = false;                  ///< from host 0
  bool invites SPILLWAY_GUARDED_BY(mutex) = false;                     ///< host 0, its guests
  AfterSaving after_saving SPILLWAY_GUARDED_BY(mutex) = AfterSaving::nothing;
  std::optional<Rescue> rescue SPILLWAY_GUARDED_BY(mutex);
  /// Trials go on in new sessions only: they have been updated outside of ops, or hosts join.
  bool must_restart SPILLWAY_GUARDED_BY(mutex) = false;
  std::optional<RunLock> run_lock SPILLWAY_GUARDED_BY(mutex);  ///< once it has taken over
  std::vector<std::unique_ptr<SessionTrial>> trials SPILLWAY_GUARDED_BY(mutex);
  mutable Mutex roster_mutex;
  std::vector<SessionTrial*> roster SPILLWAY_GUARDED_BY(roster_mutex);  ///< the same trials
  TraceRecorder trace;  // belongs to the shell's thread during a run
  const Clock::time_point start = Clock::now();
  EventList events;

  Shell* serving = nullptr;  ///< that of the run: its ops may call it, as it outlives them

  // During a run. The shell ends before the threads below.
  std::unique_ptr<Shell> shell SPILLWAY_GUARDED_BY(mutex);
  std::optional<RunController> controller SPILLWAY_GUARDED_BY(mutex);
  bool deciding SPILLWAY_GUARDED_BY(mutex) = false;        // a call of decide() is posted
  bool deciding_rungs SPILLWAY_GUARDED_BY(mutex) = false;  // a call of begin() is posted
  EngineSnapshot final_snapshot SPILLWAY_GUARDED_BY(mutex);
  double run_begin_s SPILLWAY_GUARDED_BY(mutex) = 0, run_s SPILLWAY_GUARDED_BY(mutex) = 0;
  RunPhase run_phase SPILLWAY_GUARDED_BY(mutex) = RunPhase::none;
  std::size_t num_in_run SPILLWAY_GUARDED_BY(mutex) = 0;    // trials that the shell has
  std::exception_ptr run_error SPILLWAY_GUARDED_BY(mutex);  // that ended the latest run
  CondVar idle;  // a trial has changed its phase, or the run has ended
  std::thread engine_thread SPILLWAY_GUARDED_BY(mutex);

  // Last, so that their threads end first: their work uses what is above.
  TrialStore store;
  TbbPool pool;
};

/// Returns what an op returns. If it throws, the other hosts hear of it.
template <typename Work>
auto Session::Impl::or_fail_on_hosts(JobId id, const Work& work) {
  try {
    return work();
  } catch (const DeviceLost&) {
    throw;
  } catch (...) {
    fail_on_hosts(id, current_reason());
    throw;
  }
}

}  // namespace spillway
