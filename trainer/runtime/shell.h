#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
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
#include "spilling/tiers/homes.h"
#include "trainer/runtime/device_part.h"
#include "trainer/runtime/op_runner.h"

namespace spillway {

/// Receives events of jobs and devices, on the shell's thread.
class ShellObserver {
 public:
  virtual ~ShellObserver() = default;
  virtual void on_started(JobId job) = 0;
  virtual void on_committed(const StepCommitted& committed) = 0;
  /// The job is held or suspended, and its state at home is that after its last commit.
  virtual void on_rested(const JobRested& rested) = 0;
  /// The job starts nothing until Shell::go_on(), and its state at home is that after its last
  /// commit, or will be after the updates with which its next program begins.
  virtual void on_interrupted(const JobInterrupted& interrupted) = 0;
  /// The open step starts again, because a device was lost or other hosts have dropped it.
  virtual void on_redone(JobId job, std::int64_t step) = 0;
  virtual void on_resized(JobId job, const JobPlan& plan) = 0;
  virtual void on_ended(JobId job, JobEnd end, const std::string& reason) = 0;
  virtual void on_device_joined(DeviceId device) = 0;
  virtual void on_device_left(DeviceId device, bool lost, const std::string& why) = 0;
};

/// How long a device with work may complete nothing: the larger of `least_s` and `factor` times the
/// planned duration of the work.
struct Patience {
  double least_s = 60, factor = 20;
};

/// How a shell uses its devices.
struct ShellOptions {
  Patience patience = {};
  Bytes touched = 0;           ///< see Shell::add_device(), for the first devices
  std::vector<int> gone = {};  ///< numbers of devices that left before; no event tells of them
  LinkTable links = {};        ///< between devices
};

/// Runs the engine on real devices. One thread owns the engine, the one in run(); device threads,
/// copy queues and host workers post their completions to it, so scheduling state needs no lock.
/// Without LibTorch: tests run the same shell with a runner that checks bytes.
class Shell {
 public:
  /// The devices, host arena, pool, runner, observer and trace outlive the shell. The destructor
  /// waits for running work; if run() threw or was not called, it then has the runner release the
  /// jobs that have not ended.
  Shell(EngineConfig config, const std::vector<Device*>& devices, HostArena& host, HostPool& pool,
        OpRunner& runner, ShellObserver& observer, TraceRecorder* trace = nullptr,
        ShellOptions options = {});
  ~Shell();

  /// Call it before run(), or on its thread. `home_bytes`: enough for every plan that the job may
  /// be resized to; 0: for this one.
  void submit(JobId job, std::shared_ptr<const JobPlan> plan, Bytes home_bytes = 0,
              const JobStart& start = {});
  /// Returns when every job has ended; waits while no job can continue. Throws what the engine
  /// throws.
  void run();
  /// Like run(), but waits for further jobs until close().
  void serve();

  // Any thread may call these. They take effect while run() or serve() runs.

  /// serve() returns once every job has ended.
  void close();
  /// Ends all jobs after their running ops.
  void stop_all();
  /// Ends a job after its running ops.
  void stop(JobId job);
  /// Like stop(), but the job has failed.
  void fail(JobId job, std::string reason);
  /// The job begins no step after the open one until resume().
  void pause(JobId job);
  void resume(JobId job);
  /// Like the engine's functions.
  void hold(JobId job, Hold hold);
  void suspend(JobId job, bool suspended);
  void finish(JobId job);
  /// The job changes to another plan of the same contract at its next commit.
  void resize(JobId job, std::shared_ptr<const JobPlan> plan);
  /// Like the engine's functions.
  void interrupt(JobId job);
  void go_on(JobId job, std::shared_ptr<const JobPlan> plan, bool one_step);
  /// The device gets the next number and joins once it is warm: planned ranges of `touched` bytes
  /// have been written, and its thread has computed. Throws OutOfMemory if it refuses its own
  /// budget.
  void add_device(Device& device, Bytes touched);
  /// The device leaves once the work that is bound to it has ended; the observer receives `why`.
  void remove_device(DeviceId device, std::string why);

  /// Calls `what` on the thread of run(), after earlier requests.
  void call(std::function<void()> what) { on_thread(std::move(what)); }
  /// Like call(), after a delay; not at all if the shell has gone by then.
  void call_after(std::chrono::milliseconds delay, std::function<void()> what);

  /// The counters at this moment.
  EngineSnapshot snapshot() const;
  /// The state once run() can answer, with the run's clock and the times at which work in flight
  /// was queued. If run() has ended, the shell's destructor breaks the promise.
  struct Status {
    EngineStatus engine;
    double now_s = 0;
  };
  std::future<Status> status();

 private:
  using Actions = std::vector<Action>;
  /// An action that is not yet reported as done.
  struct Flight {
    Event event;
    std::shared_ptr<std::atomic<bool>> failed;
    std::vector<ActionId> after = {};
    DeviceId device = {};
    DeviceId peer = {};    ///< source of a copy
    bool is_op = false;    ///< neither a copy nor work of the host
    double planned_s = 0;  ///< duration on its device, with that of copies before it on its path
    int path = -1;         ///< of a copy between devices that are linked
    double path_s = 0;     ///< planned duration on it
    double launched_s = 0;
  };
  /// A path between devices, with the planned duration of the copies that take it.
  struct LinkPath {
    std::unique_ptr<Link> link;
    double planned_s = 0;
  };
  struct Joining {
    std::unique_ptr<DevicePart> part;
    bool ready = false;
    std::string failure;
  };

  // shell.cpp
  void carry_out(const Actions& actions);
  void perform(const StartOp& start);
  void perform(const DropGraph& drop);
  void perform(const StartCopy& start);
  Event copy(const StartCopy& start, Link* link, Copier::Finished finished);
  double planned_s(const StartCopy& start, int path) const;
  void perform(const StartHostOp& start);
  void perform(const AdmitJob& admission);
  void perform(const StepCommitted& committed);
  void perform(const JobRested& rested);
  void perform(const JobInterrupted& interrupted);
  void perform(const StepRedone& redone);
  void perform(const PlanChanged& changed);
  void perform(const ReleaseJob& release);
  void perform(const JobEnded& ended);
  OpCall resolve(const StartOp& start);
  void exchange(ActionId id, const HostCall& call);
  void land(Done done);
  std::vector<Done>::iterator next_to_report();
  void report(const Done& done);
  void wait_for_one();
  void publish();
  template <typename Work>
  void on_thread(Work work);
  template <typename Work>
  void landing(Work work);
  template <typename Always, typename Work>
  void landing(Always always, Work work);
  template <typename Work>
  void guard(Work& work);
  void command(std::function<void(Actions&)> change);

  // shell_devices.cpp: devices that work, join, leave and fail
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
  // Shared with threads that are still inside post() when the shell is destroyed.
  const std::shared_ptr<boost::asio::io_context> io_ = std::make_shared<boost::asio::io_context>();
  std::vector<std::unique_ptr<DevicePart>> devices_;
  std::deque<Joining> joining_;  ///< in order of their future numbers
  HostPool& pool_;
  OpRunner& runner_;
  ShellObserver& observer_;
  TraceRecorder* const trace_;  ///< may be null
  const ShellOptions options_;
  std::vector<LinkPath> paths_;  ///< of options_.links
  const Clock::time_point start_ = Clock::now();
  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;
  Homes all_homes_;
  std::map<JobId, std::shared_ptr<Home>> homes_;  // shared: the host pool's work is copied
  std::map<ActionId, Flight> flights_;
  std::vector<Done> held_;    ///< ended, but something they waited for is not yet reported
  std::exception_ptr error_;  ///< ended run(); from then on completions are only counted
  bool is_open_ = false;      ///< more jobs may be submitted
  std::uint64_t launched_ = 0, landed_ = 0;
  mutable Mutex snapshot_mutex_;
  EngineSnapshot snapshot_ SPILLWAY_GUARDED_BY(snapshot_mutex_);
};

/// Posts `work` from any thread to the engine's.
template <typename Work>
void Shell::on_thread(Work work) {
  const auto io = io_;
  boost::asio::post(*io, [this, work = std::move(work)]() mutable { guard(work); });
}

/// Like on_thread(), at the end of launched work.
template <typename Work>
void Shell::landing(Work work) {
  landing([] {}, std::move(work));
}

/// `always` runs before `work`, also if run() has thrown, and does not throw.
template <typename Always, typename Work>
void Shell::landing(Always always, Work work) {
  const auto io = io_;
  boost::asio::post(*io, [this, always = std::move(always), work = std::move(work)]() mutable {
    ++landed_;
    always();
    guard(work);
  });
}

/// An exception of `work` ends run().
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
