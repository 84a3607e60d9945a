#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "scheduler/engine.h"
#include "scheduler/trace_recorder.h"
#include "spilling/copier.h"
#include "spilling/device_arena.h"
#include "spilling/host_arena.h"
#include "trainer/op_runner.h"

namespace spillway {

/// Hears of commits and ends, on the shell's thread.
class ShellObserver {
 public:
  virtual ~ShellObserver() = default;
  virtual void on_started(JobId job) = 0;
  virtual void on_committed(JobId job, std::int64_t step) = 0;
  virtual void on_ended(JobId job, JobEnd end, const std::string& reason) = 0;
};

/// The engine in real life: one thread owns it (the one in run()); device threads, copy queues and
/// host workers post their completions to that thread, so scheduling state needs no lock.
/// No LibTorch here: tests run the same shell with a runner that checks bytes.
class Shell {
 public:
  /// The devices, host arena, pool, runner, observer and trace outlive the shell. The destructor
  /// waits for what is running.
  Shell(EngineConfig config, const std::vector<Device*>& devices, HostArena& host, HostPool& pool,
        OpRunner& runner, ShellObserver& observer, TraceRecorder* trace = nullptr);
  ~Shell();

  /// Before run(), or on its thread.
  void submit(JobId job, std::shared_ptr<const JobPlan> plan);
  /// Returns when every job has ended. Throws what the engine throws.
  void run();
  /// Ends all jobs after their running ops. Any thread.
  void stop_all();

  /// The counters at this moment. Any thread.
  EngineSnapshot snapshot() const;

 private:
  /// An action that has not been reported done: its end, and whether it failed.
  struct Flight {
    Event event;
    std::shared_ptr<std::atomic<bool>> failed;
    std::vector<ActionId> after = {};
  };
  struct DevicePart {
    Device* device;
    DeviceArena arena;
    Copier copier;
    explicit DevicePart(Device* d) : device(d), arena(*d), copier(*d) {}
  };

  void carry_out(std::vector<Action> actions);
  void perform(const StartOp& start);
  void perform(const StartCopy& start);
  void perform(const StartHostOp& start);
  void perform(const AdmitJob& admission);
  void perform(const StepCommitted& committed);
  void perform(const StepRedone&) {}
  void perform(const PlanChanged& changed) { plans_[changed.job] = changed.plan; }
  void perform(const DeviceLeft&) {}
  void perform(const JobEnded& ended);
  OpCall resolve(const StartOp& start) const;
  void post(Done done);
  void land(Done done);
  bool may_report(const Done& done) const;
  void wait_for_one();
  void publish();
  double seconds(Clock::time_point time) const {
    return std::chrono::duration<double>(time - start_).count();
  }

  Engine engine_;
  std::vector<std::unique_ptr<DevicePart>> devices_;
  HostArena& host_;
  HostPool& pool_;
  OpRunner& runner_;
  ShellObserver& observer_;
  TraceRecorder* const trace_;  ///< may be null
  // Shared with threads that are still inside post() when the shell goes.
  const std::shared_ptr<boost::asio::io_context> io_ = std::make_shared<boost::asio::io_context>();
  const Clock::time_point start_ = Clock::now();
  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;
  std::map<JobId, HostArena::Region> homes_;
  std::map<ActionId, Flight> flights_;
  std::vector<Done> held_;    ///< ended before the report of something they waited for
  std::exception_ptr error_;  ///< what ended run(); completions are only counted from then on
  std::uint64_t launched_ = 0, landed_ = 0;
  mutable std::mutex snapshot_mutex_;
  EngineSnapshot snapshot_;  // under snapshot_mutex_
};

}  // namespace spillway
