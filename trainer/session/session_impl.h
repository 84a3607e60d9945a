#pragma once

#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/elastic/run_controller.h"
#include "scheduler/engine/policy.h"
#include "scheduler/engine/trace_recorder.h"
#include "scheduler/simulation/shortened_run.h"
#include "scheduler/simulation/virtual_shell.h"
#include "spillway/session.h"
#include "trainer/compute/tbb_pool.h"
#include "trainer/journal/run_journal.h"
#include "trainer/profile/pilot.h"
#include "trainer/runtime/shell.h"
#include "trainer/session/device_list.h"
#include "trainer/session/event_list.h"
#include "trainer/session/planner.h"
#include "trainer/session/session_trial.h"

/// Inside Session; nothing else includes it.
namespace spillway {

/// Throws ConfigError.
void require_valid(const EarlyTerminate& early);

struct Session::Impl final : ShellObserver, OpRunner {
  explicit Impl(SessionConfig session_config);

  // session_ops.cpp: calls go to the trial they belong to
  void admit(JobId id, std::byte* home) override;
  Keep run_op(const OpCall& call) override;
  void run_host_op(const HostCall& call) override;
  void release(JobId id, JobEnd end) override;
  void warm(Device& device) override;

  // session_events.cpp: what the shell tells, and what others hear of it
  void on_started(JobId id) override;
  void on_committed(const StepCommitted& committed) override;
  void on_redone(JobId id, std::int64_t step) override;
  void on_resized(JobId id, const JobPlan& plan) override;
  void on_ended(JobId id, JobEnd end, const std::string& reason) override;
  void on_device_joined(DeviceId id) override;
  void on_device_left(DeviceId id, bool lost, const std::string& why) override;
  // Under mutex:
  void refresh(JobId id, std::int64_t step);
  static void sum_up(SessionTrial& trial);  ///< of its history
  SessionEvent event_of(JobId id, SessionEvent::Kind kind) const;
  void add_event(JobId id, SessionEvent::Kind kind) { events.add(event_of(id, kind)); }
  void add_event(DeviceId id, SessionEvent::Kind kind, const std::string& reason);
  void set_state(JobId id, TrialState state, const std::string& reason);
  void show_state(JobId id);

  // session_devices.cpp: lanes and devices change. Under mutex:
  void refit(JobId id);
  void refit_all();
  void change_plan(JobId id, std::shared_ptr<const JobPlan> plan);
  Bytes touched_at_start() const;
  void join(DeviceList::Entry& entry);
  void rejoin_if_shrunk(DeviceId id);

  // session_lanes.cpp: who decides how many lanes a trial has. Under mutex:
  void choose_lanes(SessionTrial& trial) const;
  RunController make_controller(const RunLength& length = {}) const;
  LaneDemand demand(JobId id) const;
  void note_devices();
  void decide_if_due();
  void carry_out(const RunCommands& commands);
  void carry_out(const PauseJob& pause) { shell->pause(pause.job); }
  void carry_out(const ResumeJob& resume) { shell->resume(resume.job); }
  void carry_out(const ResizeJob& resize);

  // session_rungs.cpp: early stopping. Under mutex:
  void enter_halving(SuccessiveHalving& rule, JobId id, const RunLength& length) const;
  std::optional<Rungs> rungs() const;
  static RungLosses rung_losses(const SessionTrial& trial);
  SuccessiveHalving make_halving(const RunLength& length) const;
  void begin_rungs();
  void carry_out(const PassRung& pass);
  void carry_out(const StopAtRung& stop);

  // session_checkpoints.cpp: state that outlives the session
  TrialCheckpoints::Newest open_checkpoints(JobId id, SessionTrial& trial);
  void continue_from(SessionTrial& trial, Generation generation) const;
  void tell_damage(JobId id, const std::vector<Finding>& findings);  // under mutex
  void require_room_for_checkpoints(SessionTrial& trial) const;
  std::string xxh3_of_data(const SessionTrial& trial);
  void save_if_due(JobId id);                                   // under mutex
  void save_last(JobId id);                                     // takes it
  void report(JobId id, const TrialCheckpoints::Saved& saved);  // likewise

  // session_journal.cpp: what is known of trials for good
  const Contract& contract(SessionTrial& trial);
  std::optional<JobId> find_trial(SessionTrial& trial);
  std::vector<ContractDifference> changes(SessionTrial& trial);
  void recall(SessionTrial& trial);
  void enter(SessionTrial& trial);
  void note_state(const SessionTrial& trial);
  std::vector<TrialResult> journal_results() const;

  // session_state.cpp
  std::optional<Shell::Status> status();  // takes the mutex
  SessionState state(const Shell::Status& status) const;

  // session.cpp
  void begin_run();
  void submit_to_shell();
  void end_run(const std::string& failure);
  void require_no_run() const;
  double now_s() const;
  JobId add(std::unique_ptr<SessionTrial> trial);
  Profile profile_of(const Model& model);
  /// By kind of device, where there are several. Takes the mutex.
  std::map<std::string, std::vector<LayerTimes>> measure_kinds(const Model& model);
  /// Beside those of the trials, as many as the budget lets lie there at once.
  void require_room_for_home(const SessionTrial& trial) const;
  EngineConfig engine_config() const;
  static TrialResult whole_result(const SessionTrial& trial);
  RunResult summarise(const EngineSnapshot& snapshot, double wall_s) const;
  const SessionTrial* first_planned() const;
  // session_simulate.cpp
  Crowding measure_crowding() const;
  VirtualCosts measure_costs() const;
  RunTotals simulate(const VirtualCosts& costs, const RunLength& length,
                     std::vector<TraceSpan>& spans) const;
  static int num_host_workers();

  SessionConfig config;
  std::shared_ptr<const Policy> policy;
  std::shared_ptr<const Allocator> allocator;  // null: nothing is shared
  DeviceList devices;  // under mutex, once run() or other threads may be about
  const Planner planner{config, devices};
  std::unique_ptr<Store> home_store;
  HostArena host;
  Pilot pilot;
  std::vector<std::unique_ptr<SessionTrial>> trials;
  /// Where they were asked for, by what was found right with the samples too.
  std::map<std::pair<std::shared_ptr<const DataSplit>, std::vector<IndexRange>>, std::string>
      data_xxh3;
  mutable std::optional<RunJournal> journal;
  TraceRecorder trace;  // of the shell's thread while run() runs
  const Clock::time_point start = Clock::now();
  EventList events;

  mutable std::mutex mutex;
  // Under mutex:
  std::unique_ptr<Shell> shell;             // while run() runs; it ends before the threads below
  std::optional<RunController> controller;  // likewise
  bool deciding = false;                    // a call of decide() is under way
  EngineSnapshot final_snapshot;
  double run_begin_s = 0, run_s = 0;
  bool stop_asked = false;

  // Last, so that their threads end first: their work uses what is above.
  boost::asio::thread_pool writer{1};  // of checkpoints and the journal
  TbbPool pool;
};

}  // namespace spillway
