#include "scheduler/elastic/run_controller.h"

namespace spillway {

JobId job_of(const RunCommand& command) {
  return std::visit([](const auto& c) { return c.job; }, command);
}

std::int64_t RunController::hold_step(JobId job) const {
  return halving_ ? halving_->hold_step(job) : kNoStep;
}

JobWait RunController::waits(JobId id) const {
  if (waits_at_rung(id)) return JobWait::rung;
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? JobWait::nothing : job->second.wait;
}

void RunController::on_admitted(const LaneDemand& demand, double now_s) {
  Job& job = jobs_[demand.job] = {.demand = demand};
  if (lanes_.shares() && waits_at_rung(demand.job)) {
    job.wait = JobWait::devices;
  } else {
    arrive(job, now_s);
  }
}

void RunController::arrive(Job& job, double now_s) {
  lanes_.arrive(job.demand, now_s);
  if (lanes_.shares()) job.wait = JobWait::decision;
}

void RunController::on_committed(const StepCommitted& step, double mean_loss, double now_s,
                                 RunCommands& out) {
  lanes_.committed(step, now_s);
  if (step.step != hold_step(step.job)) return;
  halving_->reach(step.job, step.step, mean_loss);
  leave_shares(jobs_.at(step.job), out);
  decide_rungs(now_s, out);
}

/// Others may have the devices of a job that waits at a rung.
void RunController::leave_shares(Job& job, RunCommands& out) {
  if (!lanes_.shares()) return;
  lanes_.end(job.demand.job);
  job.wait = JobWait::devices;
  out.push_back(PauseJob{job.demand.job});
}

void RunController::on_ended(JobId job, double now_s, RunCommands& out) {
  lanes_.end(job);
  jobs_.erase(job);
  if (halving_) halving_->leave(job);
  decide_rungs(now_s, out);
}

void RunController::limit(JobId id, int most_lanes) {
  if (const auto job = jobs_.find(id); job != jobs_.end()) {
    job->second.demand.most_lanes = most_lanes;
  }
  lanes_.limit(id, most_lanes);
}

void RunController::fix(JobId id, int lanes) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end()) return;
  job->second.demand.lanes = lanes;
  job->second.demand.fixed = true;
  lanes_.fix(id, lanes);
}

void RunController::decide_rungs(double now_s, RunCommands& out) {
  if (!halving_ || stopping_) return;
  for (const SuccessiveHalving::Verdict& verdict : halving_->decide()) {
    if (verdict.goes_on) {
      carry_on(verdict, now_s, out);
    } else {
      out.push_back(StopAtRung{verdict.job, verdict});
    }
  }
}

/// A job that is not admitted yet arrives with its admission.
void RunController::carry_on(const SuccessiveHalving::Verdict& verdict, double now_s,
                             RunCommands& out) {
  out.push_back(PassRung{verdict.job, verdict, halving_->hold_step(verdict.job)});
  const auto job = jobs_.find(verdict.job);
  if (job == jobs_.end()) return;
  if (!lanes_.shares()) return lanes_.redone(verdict.job);  // it has waited: no whole step
  job->second.demand.first_step = verdict.rung;
  arrive(job->second, now_s);
}

void RunController::decide(RunCommands& out) {
  for (LaneChange& change : lanes_.decide()) {
    Job& job = jobs_.at(change.job);
    job.wait = change.lanes == 0 ? JobWait::devices : JobWait::nothing;
    if (change.lanes == 0) {
      out.push_back(PauseJob{change.job});
      continue;
    }
    job.demand.lanes = change.lanes;
    out.push_back(ResizeJob{change.job, change.lanes, change.avoid, change.reason});
    if (change.before == 0) out.push_back(ResumeJob{change.job});
  }
  for (auto& [id, job] : jobs_) {
    if (job.wait != JobWait::decision) continue;
    job.wait = JobWait::devices;
    out.push_back(PauseJob{id});
  }
}

}  // namespace spillway
