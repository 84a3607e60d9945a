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

/// Make a plan for so many lanes and resize the job to it. If there is no such plan the job goes on
/// as it is; on_resized() follows in both cases.
struct ResizeJob {
  JobId job;
  int lanes = 1;
  std::vector<DeviceId> avoid{};  ///< devices that take no lane of it
  std::string reason{};           ///< "wfs", "throughput: tries 4 lanes"
};

/// The job goes on from the rung where it waited, and is held at the next one.
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
  rung       ///< other jobs have still to come there
};

/// Decides for all jobs of a run how many lanes each of them has, and which go on at a rung. Pure:
/// the real session and the simulation report the same events, with their own clock, and carry out
/// the commands, in order, on their shell. Functions append commands to `out`. They may be carried
/// out once the engine's call that is under way has ended; so may decide().
class RunController {
 public:
  /// `halving`: early stopping, where all jobs are entered with the losses that are known of them.
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
  /// The devices have changed, and the job may have so many lanes, at least one.
  void limit(JobId job, int most_lanes);
  /// The user gives the job so many lanes: from now on neither shares nor rules change them. No
  /// effect on a job that is not admitted.
  void fix(JobId job, int lanes);
  /// The user stops all jobs: no rung is decided any more, because those that end there end anyway.
  void stop() { stopping_ = true; }

  /// Lets decide() be asked again without an event.
  void reconsider() { lanes_.reconsider(); }
  /// Whether an event may have changed what decide() says.
  bool is_due() const { return lanes_.is_due(); }
  /// Lanes of all jobs. Call it once for all events of a moment.
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
