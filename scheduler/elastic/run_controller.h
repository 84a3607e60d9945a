#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/elastic/early_stopping.h"
#include "scheduler/elastic/lane_controller.h"

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
  std::string reason{};           ///< "wfs", "throughput: tries 4 devices"
};

/// From now on the job rests there, and nowhere before.
struct HoldJob {
  JobId job;
  Hold hold;
};

/// The job rests at its next commit, or no longer does so.
struct SuspendJob {
  JobId job;
  bool suspended = false;
};

/// The job continues from its rung. A HoldJob follows.
struct PassRung {
  JobId job;
  EarlyStopping::Verdict verdict;
};

/// The job takes over the state that another one has at the same rung, where both rest, and its
/// learning rate times `factor`. A PassRung of each follows.
struct TakeState {
  JobId job;
  JobId from;
  std::int64_t rung = 0;
  double factor = 1;
};

/// Others were better at the rung: the job finishes with the weights that it has there.
struct StopAtRung {
  JobId job;
  EarlyStopping::Verdict verdict;
};

using RunCommand = std::variant<PauseJob, ResumeJob, ResizeJob, HoldJob, SuspendJob, TakeState,
                                PassRung, StopAtRung>;
using RunCommands = std::vector<RunCommand>;
JobId job_of(const RunCommand& command);

/// What keeps a job from beginning its next program.
enum class JobWait : std::uint8_t {
  nothing,
  decision,  ///< decide() has not yet given it lanes or refused them
  devices,   ///< others have them
  rung,      ///< other jobs still have to reach theirs, or to end so that it may begin
  until,     ///< it has reached the step where the user told it to wait
  user       ///< the user has suspended it
};

/// A job before it is admitted.
struct JobEntry {
  JobId job;
  std::int64_t first_step = 0, max_steps = 1;
  std::int64_t until = kNoStep;  ///< it waits there for extend()
  bool suspended = false;        ///< it waits for resume()
  RungLosses rung_losses{};      ///< at the rungs that it has reached
  bool is_compared = true;       ///< by early stopping
  bool has_taken = false;        ///< a state at `first_step`: it has passed the rung there
};

/// Decides how many lanes each job of a run has, where it waits, and which jobs continue at a rung.
/// Pure: the real session and the simulation report the same events, with their own clock, and
/// carry out the commands in order on their shell. Functions append commands to `out`. Carry them
/// out, and call decide(), only after the engine's current call has returned.
class RunController {
 public:
  explicit RunController(LaneController lanes, std::optional<EarlyStopping> stopping = {})
      : lanes_(std::move(lanes)), early_stopping_(std::move(stopping)) {}

  /// Adds a job, or the losses of one that ended earlier and still counts at rungs. Call these in
  /// the order of submission.
  void enter(const JobEntry& entry);
  void enter_ended(const RungLosses& losses, std::int64_t max_steps);
  /// How an entered job is submitted to the engine.
  JobStart start(JobId job) const;
  /// All jobs that the run begins with are submitted.
  void begin(double now_s, RunCommands& out) { decide_rungs(now_s, out); }
  /// The job's home is reserved.
  void on_admitted(const LaneDemand& demand, double now_s);
  void on_committed(const StepCommitted& step, double now_s);
  /// Whether the job is compared with others at this step.
  bool is_rung(JobId job, std::int64_t step) const;
  /// Why it has to stop.
  std::string explain(const StopAtRung& stop) const {
    return early_stopping_->explain(stop.verdict);
  }
  /// `loss`: by which it is compared at a rung; none: it has not evaluated there yet.
  void on_rested(const JobRested& rested, std::optional<double> loss, double now_s,
                 RunCommands& out);
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
  /// The user suspends the job, or lets it go on.
  void suspend(JobId job, RunCommands& out);
  void resume(JobId job, double now_s, RunCommands& out);
  /// The user exempts an entered job from early stopping: it goes on at all further rungs, and
  /// keeps its place where it went on before.
  void exempt(JobId job, double now_s, RunCommands& out);
  /// The user moves the step where the job waits.
  void extend(JobId job, std::int64_t until, double now_s, RunCommands& out);
  /// The user stops all jobs that are there: no rung is decided before they have ended.
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
  /// What the user says of a job.
  struct Limit {
    std::int64_t until = kNoStep;
    bool suspended = false;
    bool is_compared = true;
  };
  /// An admitted job that has not ended.
  struct Job {
    LaneDemand demand;                ///< `first_step`: the steps that it has committed
    JobWait wait = JobWait::nothing;  ///< for its share, see waits()
    bool parked = false;              ///< it takes no part in shares, and its steps no time
  };

  bool is_compared(JobId job) const { return early_stopping_ && limit_of(job).is_compared; }
  bool waits_at_rung(JobId job) const { return is_compared(job) && early_stopping_->waits(job); }
  Limit limit_of(JobId job) const;
  Hold hold(JobId job) const;
  void arrive(Job& job, double now_s);
  void park(Job& job, RunCommands& out);
  void move_hold(JobId job, double now_s, RunCommands& out);
  void go_on(JobId job, double now_s);
  void decide_rungs(double now_s, RunCommands& out);

  LaneController lanes_;
  std::optional<EarlyStopping> early_stopping_;
  std::map<JobId, Limit> limits_;  // of entered jobs that have not ended
  std::map<JobId, Job> jobs_;
  bool stopping_ = false;
};

}  // namespace spillway
