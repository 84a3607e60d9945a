#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/check/action_checker.h"

namespace spillway::testing {

/// Audits a controller across restarts, from outside: acknowledgements, saved states, started
/// actions. Checks: a job continues from its newest checkpoint, step after step; it is in at most
/// one engine at a time; nothing of it runs after its end is acknowledged, which happens once. An
/// ActionChecker watches each life.
class ControllerAudit {
 public:
  void acknowledge(const std::string& job) { jobs_[job].acknowledged = true; }
  bool is_acknowledged(const std::string& job) const {
    const auto found = jobs_.find(job);
    return found != jobs_.end() && found->second.acknowledged;
  }
  bool is_done(const std::string& job) const { return jobs_.at(job).done; }

  void begin_life() {
    end_life();
    checker_ = {};
    running_.clear();
  }
  /// An engine receives the job as `id`; its newest checkpoint on disk has `step`.
  void begin(JobId id, const std::string& job, const std::shared_ptr<const JobPlan>& plan,
             std::int64_t step) {
    for (const auto& [other, name] : running_) require(name != job, job, "is there twice");
    running_[id] = job;
    checker_.submit(id, plan);
    Record& record = jobs_[job];
    require(step >= record.saved, job, "has lost a checkpoint");
    record.committed = step;
    record.max_steps = plan->max_steps;
  }
  /// The submission is durable.
  void save(const std::string& job, std::int64_t step) { jobs_[job].saved = step; }
  /// The end is durable.
  void finish(const std::string& job) {
    require(!jobs_[job].done, job, "is done twice");
    jobs_[job].done = true;
  }

  void on_action(const Action& action) {
    checker_.on_action(action);
    std::visit([this](const auto& a) { observe(a); }, action);
  }
  void on_completion(const Done& done) { checker_.on_completion(done); }

  /// Call after the last life. Problems of all lives.
  std::vector<std::string> problems() {
    end_life();
    for (const auto& [job, record] : jobs_) {
      require(!record.acknowledged || record.done, job, "was acknowledged and is lost");
    }
    return problems_;
  }

 private:
  struct Record {
    bool acknowledged = false, done = false;
    std::int64_t saved = 0, committed = 0, max_steps = 0;
  };

  template <typename Any>
  void observe(const Any& action) {
    if constexpr (requires { action.job; }) runs(action.job);
  }
  void observe(const StepCommitted& commit) {
    Record& record = runs(commit.job);
    require(commit.step == ++record.committed, running_.at(commit.job), "has a gap in its steps");
  }
  void observe(const JobEnded& end) {
    const Record& record = runs(end.job);
    require(end.end == JobEnd::done, running_.at(end.job), "did not end well");
    require(record.committed == record.max_steps, running_.at(end.job),
            "ends before its last step");
  }
  Record& runs(JobId id) {
    Record& record = jobs_.at(running_.at(id));
    require(!record.done, running_.at(id), "runs after it was done");
    return record;
  }

  void end_life() {
    for (const std::string& problem : checker_.problems()) problems_.push_back(problem);
    checker_ = {};
  }
  void require(bool holds, const std::string& job, const char* problem) {
    if (!holds) problems_.push_back(job + " " + problem);
  }

  std::map<std::string, Record> jobs_;
  std::map<JobId, std::string> running_;  ///< in this life
  ActionChecker checker_;
  std::vector<std::string> problems_;
};

}  // namespace spillway::testing
