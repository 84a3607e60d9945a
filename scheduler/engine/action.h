#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "scheduler/plan/program.h"
#include "spilling/residency/copy.h"
#include "spillway/ids.h"
#include "spillway/units.h"

/// The engine's commands to a shell, and the shell's completions. Plain values.
namespace spillway {

/// The point at which a job rests (JobRested): once it has committed `step` steps or more.
struct Hold {
  std::int64_t step = kNoStep;  ///< kNoStep: never
  bool evaluate = false;        ///< it evaluates its weights there, if it evaluates at all
};

/// How a job starts.
struct JobStart {
  bool paused = false;     ///< it starts nothing before it is resumed
  bool suspended = false;  ///< it rests at its first step
  Hold hold;
};

/// Ops of the running unit whose inputs are loaded ahead of the next unit's weights.
inline constexpr int kOpsAhead = 8;

/// A compute op. `attempt`, here, below and in copies, counts the dropped open steps of the job.
/// `offsets`: the positions of its buffers on the device, in the order of for_each_buffer().
struct StartOp {
  ActionId id = 0;
  JobId job;
  DeviceId device;
  std::size_t step_kind = 0;  ///< the program: JobPlan::programs[step_kind]
  std::int64_t step = 0;
  int attempt = 0;
  int unit = 0, op = 0;
  std::vector<ActionId> after;  ///< started earlier, may still run
  std::vector<Bytes> offsets;
  /// A forward keeps its graph for the backward (OpSpec::graph). A backward uses the kept one.
  bool has_graph = false;
};

/// Frees a kept graph, on the device's compute queue. Its backward computes the layers again.
struct DropGraph {
  ActionId id = 0;
  JobId job;
  DeviceId device;
  int buffer = 0;  ///< OpSpec::graph
};

/// Work of the host pool. Everything it depends on is done.
struct StartHostOp {
  ActionId id = 0;
  JobId job;
  std::size_t step_kind = 0;
  std::int64_t step = 0;
  int attempt = 0;
  int op = 0;
};

/// The job's homes are reserved: get `home_bytes` of host memory, write its initial weights, then
/// report Done.
struct AdmitJob {
  ActionId id = 0;
  JobId job;
  Bytes home_bytes = 0;
};

/// A device's compute in a step: planned and actual seconds.
struct DeviceWork {
  DeviceId device;
  double planned_s = 0, busy_s = 0;
};

/// The step before `step` is committed.
struct StepCommitted {
  JobId job;
  std::int64_t step = 0;
  std::vector<DeviceWork> work = {};  ///< of the devices that took part
};

/// The job has reached the step where it is held: its updates are complete, it is evaluated if
/// requested, and it starts nothing until it is held elsewhere.
struct JobRested {
  JobId job;
  std::int64_t step = 0;
};

/// The job was interrupted: its state is that after `step` steps, nothing of it is in flight, and
/// it starts nothing until Engine::go_on().
struct JobInterrupted {
  JobId job;
  std::int64_t step = 0;
};

/// A device with work of the open step was lost, or other hosts dropped the step: it begins again
/// from the state of the last commit. No action of earlier attempts is in flight.
struct StepRedone {
  JobId job;
  std::int64_t step = 0;
  int attempt = 0;  ///< of what starts from now on
};

/// Later actions of the job belong to `plan`. No action of the job is in flight, and no device has
/// a copy. Weights, moments and gradient sums keep their places at home.
struct PlanChanged {
  JobId job;
  std::shared_ptr<const JobPlan> plan;
};

/// Nothing starts on the device any more. If it was removed, nothing is in flight there either; if
/// it was lost, its actions in flight end with Done::lost.
struct DeviceLeft {
  DeviceId device;
  bool lost = false;
};

enum class JobEnd : std::uint8_t { done, failed, stopped };

/// No action of the job runs any more: save its state if needed, free its host memory, then report
/// Done. With an error the job counts as failed.
struct ReleaseJob {
  ActionId id = 0;
  JobId job;
  JobEnd end = JobEnd::done;
};

/// The job has ended, and its host memory is free again.
struct JobEnded {
  JobId job;
  JobEnd end = JobEnd::done;
  std::string reason;
};

using Action =
    std::variant<StartOp, DropGraph, StartCopy, StartHostOp, AdmitJob, StepCommitted, JobRested,
                 JobInterrupted, StepRedone, PlanChanged, DeviceLeft, ReleaseJob, JobEnded>;

/// An action has ended. Times are seconds of the shell's clock. An action is reported after
/// everything in its `after`, and the actions of one queue are reported in order.
struct Done {
  ActionId id = 0;
  double started_s = 0, finished_s = 0;
  Bytes activation_peak = 0;  ///< compute ops
  std::string error;          ///< not empty: it failed; dependent actions do not run. Copies fail
                              ///< only with their device
  bool lost = false;          ///< its device was lost; it may or may not have run. Of an exchange:
                              ///< another host is lost, or has dropped the step
};

}  // namespace spillway
