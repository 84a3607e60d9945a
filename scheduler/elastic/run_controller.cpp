#include "scheduler/elastic/run_controller.h"

#include <algorithm>

namespace spillway {

JobId job_of(const RunCommand& command) {
  return std::visit([](const auto& c) { return c.job; }, command);
}

void RunController::enter(const JobEntry& entry) {
  limits_[entry.job] = {
      .until = entry.until, .suspended = entry.suspended, .is_compared = entry.is_compared};
  if (!is_compared(entry.job)) return;
  const std::int64_t step = entry.first_step + (entry.has_taken ? 1 : 0);
  early_stopping_->enter(entry.job, step, entry.max_steps);
  for (const auto& [rung, loss] : entry.rung_losses) {
    // It rests there first, so that its state can be taken.
    if (early_stopping_->takes_states() && rung >= step) continue;
    early_stopping_->reach(entry.job, rung, loss);
  }
}

void RunController::enter_ended(const RungLosses& losses, std::int64_t max_steps) {
  if (early_stopping_) early_stopping_->enter_ended(losses, max_steps);
}

RunController::Limit RunController::limit_of(JobId job) const {
  const auto found = limits_.find(job);
  return found == limits_.end() ? Limit() : found->second;
}

bool RunController::is_rung(JobId job, std::int64_t step) const {
  return is_compared(job) && early_stopping_->compares(job, step);
}

/// It evaluates where the user will look at its loss, or others are compared with it.
Hold RunController::hold(JobId job) const {
  const std::int64_t rung = is_compared(job) ? early_stopping_->hold_step(job) : kNoStep;
  const std::int64_t until = limit_of(job).until;
  const bool is_compared = is_rung(job, rung) && early_stopping_->evaluates();
  return {.step = std::min(rung, until), .evaluate = until <= rung || is_compared};
}

JobStart RunController::start(JobId job) const {
  return {.paused = lanes_.shares(), .suspended = limit_of(job).suspended, .hold = hold(job)};
}

JobWait RunController::waits(JobId id) const {
  const auto found = jobs_.find(id);
  const bool is_admitted = found != jobs_.end();
  const bool is_parked = !is_admitted || found->second.parked;
  if (is_parked && limit_of(id).suspended) return JobWait::user;
  if (is_parked && waits_at_rung(id)) return JobWait::rung;
  if (!is_admitted) return JobWait::nothing;
  const Job& job = found->second;
  const bool is_at_until = job.parked && job.demand.first_step >= limit_of(id).until;
  return is_at_until ? JobWait::until : job.wait;
}

void RunController::on_admitted(const LaneDemand& demand, double now_s) {
  Job& job = jobs_[demand.job] = {.demand = demand};
  job.parked = limit_of(demand.job).suspended || waits_at_rung(demand.job);
  if (!job.parked || !lanes_.shares()) arrive(job, now_s);
}

void RunController::arrive(Job& job, double now_s) {
  lanes_.arrive(job.demand, now_s);
  if (lanes_.shares()) job.wait = JobWait::decision;
}

void RunController::on_committed(const StepCommitted& step, double now_s) {
  jobs_.at(step.job).demand.first_step = step.step;
  lanes_.committed(step, now_s);
}

void RunController::on_rested(const JobRested& rested, std::optional<double> loss, double now_s,
                              RunCommands& out) {
  const bool was_parked = jobs_.at(rested.job).parked;
  if (loss && is_rung(rested.job, rested.step))
    early_stopping_->reach(rested.job, rested.step, *loss);
  if (!was_parked) park(jobs_.at(rested.job), out);
  go_on(rested.job, now_s);  // the user may have been quicker
  decide_rungs(now_s, out);
}

/// Others may have the devices of a job that rests.
void RunController::park(Job& job, RunCommands& out) {
  job.parked = true;
  job.wait = JobWait::nothing;
  if (!lanes_.shares()) return;
  lanes_.end(job.demand.job);
  out.push_back(PauseJob{job.demand.job});
}

/// The job rests elsewhere from now on. If it is not admitted yet, it arrives with its admission.
void RunController::move_hold(JobId id, double now_s, RunCommands& out) {
  out.push_back(HoldJob{id, hold(id)});
  go_on(id, now_s);
}

/// Of a parked job that nothing holds any more.
void RunController::go_on(JobId id, double now_s) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || !found->second.parked) return;
  Job& job = found->second;
  const std::int64_t step = job.demand.first_step;
  const bool may_go_on = step < hold(id).step || is_rung(id, step);  // there it evaluates first
  if (!may_go_on || limit_of(id).suspended || waits_at_rung(id)) return;
  job.parked = false;
  if (lanes_.shares()) return arrive(job, now_s);
  lanes_.redone(id);  // it has waited: no whole step
}

void RunController::suspend(JobId id, RunCommands& out) {
  limits_[id].suspended = true;
  out.push_back(SuspendJob{id, true});
  const auto job = jobs_.find(id);
  if (job == jobs_.end() || job->second.parked) return;
  if (job->second.wait == JobWait::decision || job->second.wait == JobWait::devices) {
    park(job->second, out);
  }
}

void RunController::resume(JobId id, double now_s, RunCommands& out) {
  limits_[id].suspended = false;
  out.push_back(SuspendJob{id, false});
  go_on(id, now_s);
}

void RunController::exempt(JobId id, double now_s, RunCommands& out) {
  if (!is_compared(id)) return;
  early_stopping_->leave(id);
  limits_[id].is_compared = false;
  move_hold(id, now_s, out);
  decide_rungs(now_s, out);
}

void RunController::extend(JobId id, std::int64_t until, double now_s, RunCommands& out) {
  limits_[id].until = until;
  move_hold(id, now_s, out);
}

void RunController::on_ended(JobId job, double now_s, RunCommands& out) {
  lanes_.end(job);
  jobs_.erase(job);
  if (is_compared(job)) early_stopping_->leave(job);
  limits_.erase(job);
  if (limits_.empty()) stopping_ = false;
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
  if (!early_stopping_ || stopping_) return;
  const auto verdicts = early_stopping_->decide();
  for (const EarlyStopping::Verdict& verdict : verdicts) {
    if (!verdict.source.valid()) continue;
    out.push_back(TakeState{verdict.job, verdict.source, verdict.rung, verdict.factor});
  }
  for (const EarlyStopping::Verdict& verdict : verdicts) {
    if (verdict.goes_on) {
      if (verdict.rung > 0) out.push_back(PassRung{verdict.job, verdict});
      move_hold(verdict.job, now_s, out);
    } else {
      out.push_back(StopAtRung{verdict.job, verdict});
    }
  }
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
