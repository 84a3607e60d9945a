#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/policy.h"
#include "scheduler/trace_recorder.h"
#include "trainer/device_list.h"
#include "trainer/pilot.h"
#include "trainer/plan_trial.h"
#include "trainer/session.h"
#include "trainer/shell.h"
#include "trainer/tbb_pool.h"
#include "trainer/training_job.h"

/// Inside Session; nothing else includes it.
namespace spillway {

struct SessionTrial {
  TrialConfig config;
  std::shared_ptr<const Model> model;
  Profile profile;
  std::map<std::string, std::vector<LayerTimes>> times;  ///< by kind of device, where measured
  PlannedTrial planned;                                  ///< as submitted
  std::unique_ptr<TrainingJob> job;
  TrialResult result;
  double started_s = 0, last_s = 0, gradient_norm = 0;
  std::shared_ptr<const JobPlan> plan;  ///< that it has, or will have at its next commit
  int lanes_asked = 1;                  ///< the plan may have fewer
  bool started = false;
  bool stranded = false;  ///< no device that is there can run it
  bool ended() const { return result.state > TrialState::running; }
};

/// Hands calls to the trial they belong to.
class TrialRunner final : public OpRunner {
 public:
  explicit TrialRunner(std::vector<std::unique_ptr<SessionTrial>>& trials) : trials_(trials) {}
  void admit(JobId job, std::byte* home) override;
  Keep run_op(const OpCall& call) override;
  void run_host_op(const HostCall& call) override;
  void warm(Device& device) override;

 private:
  std::vector<std::unique_ptr<SessionTrial>>& trials_;
};

struct Session::Impl final : ShellObserver {
  explicit Impl(SessionConfig session_config);

  // session_events.cpp: what the shell tells, and what others hear of it
  void on_started(JobId id) override;
  void on_committed(JobId id, std::int64_t step) override;
  void on_redone(JobId id, std::int64_t step) override;
  void on_resized(JobId id, const JobPlan& plan) override;
  void on_ended(JobId id, JobEnd end, const std::string& reason) override;
  void on_device_joined(DeviceId id) override;
  void on_device_left(DeviceId id, bool lost, const std::string& why) override;
  // Under mutex:
  void refresh(JobId id, std::int64_t step);
  SessionEvent& add_event(JobId id, SessionEvent::Kind kind);
  void add_event(DeviceId id, SessionEvent::Kind kind, const std::string& reason);
  void set_state(JobId id, TrialState state, const std::string& reason);

  // session_devices.cpp: lanes and devices change. Under mutex:
  PlanDevice plan_device(const SessionTrial& trial, std::size_t device) const;
  std::vector<PlanDevice> plan_devices(const SessionTrial& trial) const;
  PlannedTrial plan_for(const SessionTrial& trial, int lanes) const;
  Bytes home_for_all_lanes(const SessionTrial& trial) const;
  bool try_lanes(JobId id, int lanes);
  void refit(JobId id);
  void refit_all();
  void change_plan(JobId id, std::shared_ptr<const JobPlan> plan);
  void join(DeviceList::Entry& entry);
  void rejoin_if_shrunk(DeviceId id);

  // session.cpp
  double now_s() const;
  Profile profile_of(const Model& model);
  /// By kind of device, where there are several. Takes the mutex.
  std::map<std::string, std::vector<LayerTimes>> measure_kinds(const Model& model);
  /// Beside those of the trials, as many as the budget lets lie there at once.
  void require_room_for_home(const SessionTrial& trial) const;
  EngineConfig engine_config() const;
  RunResult summarise(const EngineSnapshot& snapshot, double wall_s) const;
  static int num_host_workers();

  SessionConfig config;
  std::shared_ptr<const Policy> policy;
  DeviceList devices;  // under mutex, once run() or other threads may be about
  std::unique_ptr<Store> home_store;
  HostArena host;
  Pilot pilot;
  std::vector<std::unique_ptr<SessionTrial>> trials;
  TbbPool pool;
  TrialRunner runner;
  TraceRecorder trace;  // of the shell's thread while run() runs
  const Clock::time_point start = Clock::now();

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  // Under mutex:
  std::vector<SessionEvent> events;
  std::unique_ptr<Shell> shell;  // while run() runs
  EngineSnapshot final_snapshot;
  double run_begin_s = 0, run_s = 0;
  bool stop_asked = false;
};

}  // namespace spillway
