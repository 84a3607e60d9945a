#include "experiments/support/shared_run.h"

#include <algorithm>

#include "spillway/error.h"

namespace spillway::experiments {
namespace {

/// The virtual controller: does what a session does.
class Controller {
 public:
  Controller(const SharedRun& run, const std::vector<ElasticJob>& jobs)
      : run_(run),
        jobs_(jobs),
        states_(jobs.size()),
        num_devices_(static_cast<int>(run.engine.device_budgets.size())),
        sharing_(make_allocator(run.allocator), num_devices_),
        shell_(run.engine, run.costs) {
    outcome_.jobs.resize(jobs.size());
    shell_.on_action = [this](const Action& action) {
      std::visit([this](const auto& a) { observe(a); }, action);
    };
  }

  SharedOutcome run() {
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      outcome_.jobs[j].arrived_s = jobs_[j].arrival_s;
      shell_.call_at(jobs_[j].arrival_s, [this, j](VirtualShell&) { arrive(j); });
    }
    shell_.run();
    const double device_s = num_devices_ * outcome_.makespan_s;
    outcome_.given_share = given_s_ / device_s;
    for (const DeviceCounters& device : snapshot_of(shell_.engine()).devices) {
      outcome_.busy_share += device.busy_s / device_s;
    }
    if (num_ended_ != jobs_.size()) throw Error("a job did not end");
    return outcome_;
  }

 private:
  struct State {
    JobId engine_id;
    int decision = 0;    ///< number of the latest one about it
    int lanes = 0;       ///< that it runs on
    int next = 0;        ///< of the plan that it was last given
    int decided = 0;     ///< that it shall run on
    bool began = false;  ///< its first step
    double committed_s = 0;
    bool whole_step = false;  ///< the open step began on these lanes, and is none of start-up
  };
  template <typename A>
  void observe(const A&) {}
  void observe(const StartHostOp& op);
  void observe(const StepCommitted& committed);
  void observe(const PlanChanged& changed);
  void observe(const JobEnded& ended);
  void arrive(std::size_t j);
  void decide();
  void start(std::size_t j, int lanes);
  void resize(std::size_t j, int lanes);
  void bring_plan(std::size_t j, int lanes);
  void note_given();
  /// Calls back once the engine's call that is under way has ended.
  void later(std::function<void()> call) {
    shell_.call_at(shell_.now_s(), [call = std::move(call)](VirtualShell&) { call(); });
  }
  std::size_t place(JobId engine_id) const { return started_.at(engine_id.index()); }

  const SharedRun& run_;
  const std::vector<ElasticJob>& jobs_;
  std::vector<State> states_;
  std::vector<std::size_t> started_;  // by the engine's number
  int num_devices_;
  Sharing sharing_;
  VirtualShell shell_;
  SharedOutcome outcome_;
  std::size_t num_ended_ = 0;
  double given_s_ = 0, noted_s_ = 0;
};

void Controller::note_given() {
  given_s_ += std::min(sharing_.lanes_given(), num_devices_) * (shell_.now_s() - noted_s_);
  noted_s_ = shell_.now_s();
}

void Controller::arrive(std::size_t j) {
  note_given();
  const ElasticJob& job = jobs_[j];
  sharing_.arrive({.job = JobId(j),
                   .priority = job.priority,
                   .arrival_s = job.arrival_s,
                   .most_lanes = static_cast<int>(job.plans.size()),
                   .remaining_s = static_cast<double>(job.plans[0]->max_steps) / job.speed.speed(1),
                   .speed = job.speed});
  decide();
}

void Controller::decide() {
  note_given();
  for (const Sharing::Change& change : sharing_.decide()) {
    if (change.lanes == 0) throw Error("a job that runs would have to wait");
    ++states_[change.job.index()].decision;
    states_[change.job.index()].decided = change.lanes;
    if (change.before == 0) {
      start(change.job.index(), change.lanes);
    } else {
      resize(change.job.index(), change.lanes);
    }
  }
}

void Controller::start(std::size_t j, int lanes) {
  const ElasticJob& job = jobs_[j];
  outcome_.jobs[j].started_s = shell_.now_s();
  states_[j].engine_id = JobId(started_.size());
  states_[j].lanes = states_[j].next = lanes;
  started_.push_back(j);
  Bytes home = 0;
  for (const auto& plan : job.plans) home = std::max(home, plan->layout.home_bytes);
  const auto& plan = job.plans[at(lanes - 1)];
  shell_.submit(states_[j].engine_id, job.start_up.empty() ? plan : job.start_up[at(lanes - 1)],
                home);
}

/// The first step began, from then on the job can be resized: after its start-up, first of all.
void Controller::observe(const StartHostOp& op) {
  const std::size_t j = place(op.job);
  if (std::exchange(states_[j].began, true)) return;
  later([this, j] { bring_plan(j, states_[j].next); });
}

void Controller::bring_plan(std::size_t j, int lanes) {
  states_[j].next = lanes;
  if (states_[j].began) shell_.resize(states_[j].engine_id, jobs_[j].plans[at(lanes - 1)]);
}

/// Devices that join start up first, beside the job; the latest decision counts.
void Controller::resize(std::size_t j, int lanes) {
  ++outcome_.resizes;
  const double wait_s = lanes > states_[j].lanes ? jobs_[j].growth_s : jobs_[j].shrink_s;
  const int decision = states_[j].decision;
  shell_.call_at(shell_.now_s() + wait_s, [this, j, lanes, decision](VirtualShell&) {
    if (states_[j].decision != decision || outcome_.jobs[j].ended_s > 0) return;
    bring_plan(j, lanes);
    if (lanes != states_[j].lanes) return;  // goes on as PlanChanged
    sharing_.resized(JobId(j));
    decide();
  });
}

void Controller::observe(const StepCommitted& committed) {
  const std::size_t j = place(committed.job);
  State& state = states_[j];
  const double step_s = shell_.now_s() - state.committed_s;
  const double left = static_cast<double>(jobs_[j].plans[0]->max_steps - committed.step);
  const bool measured = std::exchange(state.whole_step, true);
  state.committed_s = shell_.now_s();
  if (!measured) return;
  later([this, j, lanes = state.lanes, step_s, left] {
    if (outcome_.jobs[j].ended_s > 0) return;
    sharing_.committed(JobId(j), lanes, step_s, left);
    if (run_.decide_at_commits) decide();
  });
}

void Controller::observe(const PlanChanged& changed) {
  const std::size_t j = place(changed.job);
  states_[j].lanes = static_cast<int>(changed.plan->lanes.size());
  states_[j].whole_step = true;  // it changes where a step begins
  later([this, j] {
    if (outcome_.jobs[j].ended_s > 0 || states_[j].lanes != states_[j].decided) return;
    sharing_.resized(JobId(j));
    decide();
  });
}

void Controller::observe(const JobEnded& ended) {
  if (ended.end != JobEnd::done) throw Error(ended.reason);
  const std::size_t j = place(ended.job);
  outcome_.jobs[j].ended_s = outcome_.makespan_s = shell_.now_s();
  ++num_ended_;
  later([this, j] {
    note_given();
    sharing_.end(JobId(j));
    decide();
  });
}

}  // namespace

SharedOutcome run(const SharedRun& run, const std::vector<ElasticJob>& jobs) {
  return Controller(run, jobs).run();
}

}  // namespace spillway::experiments
