#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "spilling/residency/copy.h"
#include "spillway/ids.h"
#include "spillway/units.h"

/// What the engine tells a shell to do, and what a shell tells the engine. Plain values.
namespace spillway {

struct JobPlan;

/// A compute op. `attempt`, here and below, and of a copy: how often an open step of the job has
/// been dropped so far. `offsets`: where its buffers lie on the device, in the order of
/// for_each_buffer().
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

/// What a device did of a step: compute, as planned and as it was.
struct DeviceWork {
  DeviceId device;
  double planned_s = 0, busy_s = 0;
};

/// The step before `step` is committed.
struct StepCommitted {
  JobId job;
  std::int64_t step = 0;
  std::vector<DeviceWork> work = {};  ///< a device that did nothing of it is not named
};

/// A device was lost while it had work of the open step: the step begins again, from the state of
/// the last commit. Nothing of the attempts before is in flight.
struct StepRedone {
  JobId job;
  std::int64_t step = 0;
  int attempt = 0;  ///< of what starts from now on
};

/// What the job starts from now on belongs to `plan`. Nothing of it is in flight, no device has a
/// copy. Weights, moments and gradient sums stay where they are at home.
struct PlanChanged {
  JobId job;
  std::shared_ptr<const JobPlan> plan;
};

/// Nothing starts on the device any more. Where it was removed, nothing is in flight there either;
/// where it was lost, what is in flight there ends with Done::lost.
struct DeviceLeft {
  DeviceId device;
  bool lost = false;
};

enum class JobEnd : std::uint8_t { done, failed, stopped };

/// Nothing of the job runs any more: keep what has to be kept of its state, give back its host
/// memory, then report Done. With an error the job counts as failed.
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

using Action = std::variant<StartOp, StartCopy, StartHostOp, AdmitJob, StepCommitted, StepRedone,
                            PlanChanged, DeviceLeft, ReleaseJob, JobEnded>;

/// An action has ended. Times are seconds of the shell's clock. The engine hears of an action only
/// after everything in its `after`, and of the actions of one queue in their order.
struct Done {
  ActionId id = 0;
  double started_s = 0, finished_s = 0;
  Bytes activation_peak = 0;  ///< compute ops
  std::string error;          ///< not empty: it failed; what depends on it does not run
  bool lost = false;          ///< its device was lost: it may have run or not, and never will
};

}  // namespace spillway
