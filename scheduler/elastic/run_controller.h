#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/elastic/lane_controller.h"
#include "scheduler/elastic/successive_halving.h"

namespace spillway {

/// The job begins no program after the open one, until ResumeJob. It may be paused already.
struct PauseJob {
  JobId job;
};

struct ResumeJob {
  JobId job;
};

/// Make a plan for `lanes` lanes and resize the job to it. If there is no such plan, the job keeps
/// its plan. Call on_resized() in both cases.
struct ResizeJob {
  JobId job;
  int lanes = 1;
  std::vector<DeviceId> avoid{};  ///< devices that take no lane of it
  std::string reason{};           ///< "wfs", "throughput: tries 4 lanes"
};

/// The job continues from its rung and is held at the next one.
struct PassRung {
  JobId job;
  SuccessiveHalving::Verdict verdict;
  std::int64_t hold_step = kNoStep;
};

/// Others were better at the rung.
struct StopAtRung {
  JobId job;
  SuccessiveHalving::Verdict verdict;
};

using RunCommand = std::variant<PauseJob, ResumeJob, ResizeJob, PassRung, StopAtRung>;
using RunCommands = std::vector<RunCommand>;
JobId job_of(const RunCommand& command);

/// What keeps a job from beginning its next program.
enum class JobWait : std::uint8_t {
  nothing,
  decision,  ///< decide() has not yet given it lanes or refused them
  devices,   ///< others have them
  rung       ///< other jobs still have to reach it
};

/// Decides how many lanes each job of a run has and which jobs continue at a rung. Pure: the real
/// session and the simulation report the same events, with their own clock, and carry out the
/// commands in order on their shell. Functions append commands to `out`. Carry them out, and call
/// decide(), only after the engine's current call has returned.
class RunController {
 public:
  /// `halving`: early stopping, with all jobs and their known losses already entered.
  explicit RunController(LaneController lanes, std::optional<SuccessiveHalving> halving = {})
      : lanes_(std::move(lanes)), halving_(std::move(halving)) {}

  /// How a job is submitted to the engine: paused or not, and held at this step.
  bool begins_paused() const { return lanes_.shares(); }
  std::int64_t hold_step(JobId job) const;

  /// All jobs that the run begins with are submitted.
  void begin(double now_s, RunCommands& out) { decide_rungs(now_s, out); }
  /// The job's home is reserved.
  void on_admitted(const LaneDemand& demand, double now_s);
  /// `mean_loss`: since the rung before; only read where the job is held at this step.
  void on_committed(const StepCommitted& step, double mean_loss, double now_s, RunCommands& out);
  /// The open step begins again: its duration is not measured.
  void on_redone(JobId job) { lanes_.redone(job); }
  /// The job runs on the plan of its last ResizeJob, or there was none.
  void on_resized(JobId job) { lanes_.resized(job); }
  void on_ended(JobId job, double now_s, RunCommands& out);
  void on_device_left(DeviceId device) { lanes_.forget_device(device); }
  void set_num_devices(int num_devices) { lanes_.set_num_devices(num_devices); }
  /// The devices have changed, and the job may have up to `most_lanes` lanes, at least one.
  void limit(JobId job, int most_lanes);
  /// The user fixes the job's lanes: from now on neither shares nor rules change them. No effect on
  /// a job that is not admitted.
  void fix(JobId job, int lanes);
  /// The user stops all jobs: no rung is decided any more, because all of them end anyway.
  void stop() { stopping_ = true; }

  /// Makes is_due() true without an event.
  void reconsider() { lanes_.reconsider(); }
  /// Whether an event may have changed the result of decide().
  bool is_due() const { return lanes_.is_due(); }
  /// Decides the lanes of all jobs. Call it once for all simultaneous events.
  void decide(RunCommands& out);

  bool is_admitted(JobId job) const { return jobs_.contains(job); }
  JobWait waits(JobId job) const;

 private:
  struct Job {
    LaneDemand demand;
    JobWait wait = JobWait::nothing;  ///< never `rung`, see waits()
  };

  bool waits_at_rung(JobId job) const { return halving_ && halving_->waits(job); }
  void arrive(Job& job, double now_s);
  void leave_shares(Job& job, RunCommands& out);
  void decide_rungs(double now_s, RunCommands& out);
  void carry_on(const SuccessiveHalving::Verdict& verdict, double now_s, RunCommands& out);

  LaneController lanes_;
  std::optional<SuccessiveHalving> halving_;
  std::map<JobId, Job> jobs_;  // admitted and not ended
  bool stopping_ = false;
};

}  // namespace spillway
