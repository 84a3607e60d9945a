#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "scheduler/engine/engine.h"
#include "scheduler/engine/engine_status.h"
#include "scheduler/engine/trace_recorder.h"
#include "spilling/tiers/host_arena.h"
#include "trainer/runtime/device_part.h"
#include "trainer/runtime/op_runner.h"

namespace spillway {

/// Hears of jobs and devices, on the shell's thread.
class ShellObserver {
 public:
  virtual ~ShellObserver() = default;
  virtual void on_started(JobId job) = 0;
  virtual void on_committed(const StepCommitted& committed) = 0;
  /// The open step begins again, because a device was lost.
  virtual void on_redone(JobId job, std::int64_t step) = 0;
  virtual void on_resized(JobId job, const JobPlan& plan) = 0;
  virtual void on_ended(JobId job, JobEnd end, const std::string& reason) = 0;
  virtual void on_device_joined(DeviceId device) = 0;
  virtual void on_device_left(DeviceId device, bool lost, const std::string& why) = 0;
};

/// How long a device may give no sign of life while it has work: the larger of `least_s` and
/// `factor` times what the work is planned to take.
struct Patience {
  double least_s = 60, factor = 20;
};

/// The engine in real life: one thread owns it (the one in run()); device threads, copy queues and
/// host workers post their completions to that thread, so scheduling state needs no lock.
/// No LibTorch here: tests run the same shell with a runner that checks bytes.
class Shell {
 public:
  /// The devices, host arena, pool, runner, observer and trace outlive the shell. The destructor
  /// waits for what is running, then has the runner release the jobs that have not ended: run() has
  /// thrown, or was not called. `touched`: see add_device(), for these devices.
  /// `gone`: numbers of devices that have left before; nobody hears of them.
  Shell(EngineConfig config, const std::vector<Device*>& devices, HostArena& host, HostPool& pool,
        OpRunner& runner, ShellObserver& observer, TraceRecorder* trace = nullptr,
        Patience patience = {}, Bytes touched = 0, const std::vector<int>& gone = {});
  ~Shell();

  /// Before run(), or on its thread. `home_bytes`: enough for any plan that the job may be resized
  /// to; 0: for this one.
  /// `paused`: it begins with resume() only. `hold_step`: see hold().
  void submit(JobId job, std::shared_ptr<const JobPlan> plan, Bytes home_bytes = 0,
              bool paused = false, std::int64_t hold_step = kNoStep);
  /// Returns when every job has ended; waits where none can go on. Throws what the engine throws.
  void run();

  // Any thread. What they ask for is carried out while run() runs.

  /// Ends all jobs after their running ops.
  void stop_all();
  /// Ends a job after its running ops.
  void stop(JobId job);
  /// Likewise, as failed.
  void fail(JobId job, std::string reason);
  /// The job begins no step after the open one, until resume().
  void pause(JobId job);
  void resume(JobId job);
  /// The job begins nothing once it has committed `step` steps, until another step is said.
  void hold(JobId job, std::int64_t step);
  /// Another plan of the same contract takes the place of the job's at its next commit.
  void resize(JobId job, std::shared_ptr<const JobPlan> plan);
  /// The device joins as the next in number once it is warm: planned ranges of `touched` bytes have
  /// been written, and its thread has computed. Throws OutOfMemory where it refuses its own budget.
  void add_device(Device& device, Bytes touched);
  /// The device leaves once what is bound to it has ended; the observer hears `why`.
  void remove_device(DeviceId device, std::string why);

  /// Calls it on the thread that runs run(), after what was asked for before.
  void call(std::function<void()> what) { on_thread(std::move(what)); }

  /// The counters at this moment.
  EngineSnapshot snapshot() const;
  /// What is going on, once run() comes to answer: with the run's clock, and when what is under way
  /// was handed to its queue. Where run() has ended, the shell's end breaks the promise.
  struct Status {
    EngineStatus engine;
    double now_s = 0;
  };
  std::future<Status> status();

 private:
  using Actions = std::vector<Action>;
  /// An action that has not been reported done: its end, and whether it failed.
  struct Flight {
    Event event;
    std::shared_ptr<std::atomic<bool>> failed;
    std::vector<ActionId> after = {};
    DeviceId device = {};
    DeviceId peer = {};    ///< that it copies from
    double planned_s = 0;  ///< on its device
    double launched_s = 0;
  };
  struct Joining {
    std::unique_ptr<DevicePart> part;
    bool ready = false;
    std::string failure;
  };

  // shell.cpp
  void carry_out(const Actions& actions);
  void perform(const StartOp& start);
  void perform(const StartCopy& start);
  void perform(const StartHostOp& start);
  void perform(const AdmitJob& admission);
  void perform(const StepCommitted& committed);
  void perform(const StepRedone& redone);
  void perform(const PlanChanged& changed);
  void perform(const ReleaseJob& release);
  void perform(const JobEnded& ended);
  OpCall resolve(const StartOp& start);
  void land(Done done);
  bool may_report(const Done& done) const;
  void report(const Done& done);
  void wait_for_one();
  void publish();
  template <typename Work>
  void on_thread(Work work);
  template <typename Work>
  void landing(Work work);
  template <typename Work>
  void guard(Work& work);
  void command(std::function<void(Actions&)> change);

  // shell_devices.cpp: devices work, come, go and fail
  void launch(ActionId id, Flight flight);
  static void note_failure(Device& device, Done& done);
  void require_good(DeviceId id, Device& device);
  void post(DeviceId device, Done done, OpRunner::Keep keep = {},
            std::vector<double*> numbers = {});
  void reported(const Flight& flight);
  void perform(const DeviceLeft& left);
  void warm(DevicePart& part, Bytes touched, std::function<void(const std::string& failure)> then);
  void join_ready();
  DeviceId take_in(std::unique_ptr<DevicePart> part);
  void watch(DevicePart& part);
  void lose(DeviceId id, const std::string& why);
  void notice_shrinking(DeviceId id);
  void leave(DeviceId id, const std::string& why);
  void release(DevicePart& part);

  DevicePart& part(DeviceId id) const { return *devices_[id.index()]; }
  double seconds(Clock::time_point time) const {
    return std::chrono::duration<double>(time - start_).count();
  }

  Engine engine_;
  // Shared with threads that are still inside post() when the shell goes.
  const std::shared_ptr<boost::asio::io_context> io_ = std::make_shared<boost::asio::io_context>();
  std::vector<std::unique_ptr<DevicePart>> devices_;
  std::deque<Joining> joining_;  ///< in order of their numbers to be
  HostArena& host_;
  HostPool& pool_;
  OpRunner& runner_;
  ShellObserver& observer_;
  TraceRecorder* const trace_;  ///< may be null
  const Patience patience_;
  const Clock::time_point start_ = Clock::now();
  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;
  using Home = std::shared_ptr<HostArena::Region>;  // shared: the host pool's work is copied
  std::map<JobId, Home> homes_;
  std::map<ActionId, Flight> flights_;
  std::vector<Done> held_;    ///< ended before the report of something they waited for
  std::exception_ptr error_;  ///< what ended run(); completions are only counted from then on
  std::uint64_t launched_ = 0, landed_ = 0;
  mutable Mutex snapshot_mutex_;
  EngineSnapshot snapshot_ SPILLWAY_GUARDED_BY(snapshot_mutex_);
};

/// From any thread to the engine's.
template <typename Work>
void Shell::on_thread(Work work) {
  const auto io = io_;
  boost::asio::post(*io, [this, work = std::move(work)]() mutable { guard(work); });
}

/// Likewise, at the end of something that was launched.
template <typename Work>
void Shell::landing(Work work) {
  const auto io = io_;
  boost::asio::post(*io, [this, work = std::move(work)]() mutable {
    ++landed_;
    guard(work);
  });
}

/// What it throws ends run().
template <typename Work>
void Shell::guard(Work& work) {
  if (error_) return;
  try {
    work();
  } catch (...) {
    error_ = std::current_exception();
  }
}

}  // namespace spillway
