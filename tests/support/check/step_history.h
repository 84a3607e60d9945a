#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/engine/action.h"
#include "scheduler/plan/program.h"

namespace spillway::testing {

/// Records the started and ended work of every job's open step. Checks: every op runs once in an
/// attempt and in the order of its unit; updates, loads and an evaluation run once over all
/// attempts; a committed step has every op of its last attempt.
class StepHistory {
 public:
  void submit(JobId job, std::shared_ptr<const JobPlan> plan) {
    jobs_[job].step = plan->first_step;
    jobs_[job].plan = std::move(plan);
  }
  const JobPlan& plan(JobId job) const { return *jobs_.at(job).plan; }
  std::int64_t step(JobId job) const { return jobs_.at(job).step; }
  int attempt(JobId job) const { return jobs_.at(job).attempt; }
  const std::vector<std::string>& problems() const { return problems_; }

  void on_start(const StartOp& start) {
    Job& job = jobs_.at(start.job);
    require(job.step == start.step, "an op of another step");
    require(job.attempt == start.attempt, "an op of another attempt");
    begin_program(job, start.step_kind);
    require(job.started_ops.insert(start.op).second, "an op ran twice");
    const auto& unit =
        job.plan->programs[start.step_kind]->units[static_cast<std::size_t>(start.unit)];
    if (start.op > unit.first_op) {
      require(job.started_ops.contains(start.op - 1), "ops out of order");
    }
  }
  void on_start(const StartCopy& start) {
    require(jobs_.at(start.job).attempt == start.attempt, "a copy of another attempt");
  }
  void on_start(const StartHostOp& start) {
    Job& job = jobs_.at(start.job);
    require(job.attempt == start.attempt, "a host op of another attempt");
    begin_program(job, start.step_kind);
    require(job.started_host_ops.insert(name(job, start)).second, "a host op ran twice");
  }
  void on_end(const StartOp& start) { jobs_.at(start.job).ended_ops.insert(start.op); }
  void on_end(const StartHostOp& start) {
    Job& job = jobs_.at(start.job);
    job.ended_host_ops.insert(name(job, start));
  }

  void observe(const StepCommitted& committed) {
    Job& job = jobs_.at(committed.job);
    check_complete(job);
    require(committed.step == ++job.step, "a step is committed out of order");
    job.ended_host_ops.clear();
    end_program(job);
  }
  void observe(const JobRested& rested) {
    const Job& job = jobs_.at(rested.job);
    require(rested.step == job.step, "a job rests at another step than its last");
    if (job.program) check_complete(job);
    const bool updates = job.step > job.plan->first_step && !job.plan->layout.weights.empty();
    const auto is_update = [](const HostOpName& op) {
      return op.first == HostOpKind::update || op.first == HostOpKind::take_weights;
    };
    require(!updates || std::ranges::any_of(job.ended_host_ops, is_update),
            "a job rests without its updates");
  }
  void observe(const JobInterrupted& interrupted) {
    Job& job = jobs_.at(interrupted.job);
    require(interrupted.step == job.step, "a job is interrupted at another step than its last");
    job.ended_host_ops.erase({HostOpKind::finish_evaluation, 0});
    job.is_interrupted = true;
    end_program(job);
  }
  /// Engine::go_on().
  void go_on(JobId job) { jobs_.at(job).is_interrupted = false; }
  void observe(const StepRedone& redone) {
    Job& job = jobs_.at(redone.job);
    require(redone.step == job.step, "a step that is not open is redone");
    require(redone.attempt == ++job.attempt, "attempts out of order");
    std::erase_if(job.ended_host_ops, [](const HostOpName& op) {
      return op.first != HostOpKind::load && op.first != HostOpKind::update &&
             op.first != HostOpKind::update_part && op.first != HostOpKind::finish_evaluation;
    });
    end_program(job);
  }
  void observe(const PlanChanged& changed) {
    Job& job = jobs_.at(changed.job);
    job.plan = changed.plan;
    const bool evaluated = has_evaluated(job);
    std::erase_if(job.ended_host_ops, [&](const HostOpName& op) {
      return op.first == HostOpKind::load && !(evaluated && op.second == 1);
    });
    end_program(job);
  }
  void observe(const JobEnded& ended) {
    if (ended.end == JobEnd::done) check_complete(jobs_.at(ended.job));
  }

 private:
  /// The same in every plan for what is kept when a step is redone.
  using HostOpName = std::pair<HostOpKind, int>;
  struct Job {
    std::shared_ptr<const JobPlan> plan;
    std::int64_t step = 0;
    int attempt = 0;
    std::size_t step_kind = 0;         // of the open program
    const Program* program = nullptr;  // null: none is open
    std::set<int> started_ops, ended_ops;
    std::set<HostOpName> started_host_ops, ended_host_ops;
    bool is_interrupted = false;
  };

  /// Whether the op is named by its number: a program may have several of a layer.
  static bool is_numbered(HostOpKind kind) {
    return kind == HostOpKind::exchange || kind == HostOpKind::add;
  }
  static HostOpName name(const Program& program, int number) {
    const HostOpSpec& op = program.host_ops[static_cast<std::size_t>(number)];
    return {op.kind, is_numbered(op.kind) ? number : op.index};
  }
  static HostOpName name(const Job& job, const StartHostOp& start) {
    return name(*job.plan->programs[start.step_kind], start.op);
  }

  static bool has_evaluated(const Job& job) {
    return job.ended_host_ops.contains({HostOpKind::finish_evaluation, 0});
  }

  static void end_program(Job& job) { job.program = nullptr; }

  /// The program may already be open. Work completed for good counts, whatever the plan; so does
  /// the evaluation once it has ended.
  void begin_program(Job& job, std::size_t step_kind) {
    require(!job.is_interrupted, "an interrupted job starts something");
    if (job.program && job.step_kind == step_kind) return;
    if (job.program) check_complete(job);  // it has rested
    job.step_kind = step_kind;
    job.program = job.plan->programs[step_kind].get();
    const auto& ops = job.program->ops;
    job.ended_ops.clear();
    for (std::size_t i = 0; has_evaluated(job) && i < ops.size(); ++i) {
      if (ops[i].kind == OpKind::evaluate) job.ended_ops.insert(static_cast<int>(i));
    }
    // Other hosts send their parts of the weights again.
    std::erase_if(job.ended_host_ops, [](const auto& op) {
      return is_numbered(op.first) || op.first == HostOpKind::take_weights;
    });
    job.started_ops = job.ended_ops;
    job.started_host_ops = job.ended_host_ops;
  }

  void check_complete(const Job& job) {
    require(job.program, "a step without a program");
    if (!job.program) return;
    require(job.ended_ops.size() == job.program->ops.size(), "a step without all of its ops");
    for (int op = 0; op < static_cast<int>(job.program->host_ops.size()); ++op) {
      require(job.ended_host_ops.contains(name(*job.program, op)),
              "a step without all of its host ops");
    }
  }

  void require(bool holds, const char* problem) {
    if (!holds) problems_.emplace_back(problem);
  }

  std::map<JobId, Job> jobs_;
  std::vector<std::string> problems_;
};

}  // namespace spillway::testing
