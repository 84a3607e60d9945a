#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/check/action_checker.h"

namespace spillway::testing {

/// A virtual run whose actions are checked and recorded.
class WatchedRun {
 public:
  explicit WatchedRun(EngineConfig config, VirtualCosts costs = {})
      : shell(std::move(config), std::move(costs)) {
    shell.on_action = [this](const Action& action) {
      checker.on_action(action);
      actions.push_back(action);
    };
    shell.on_completion = [this](const Done& done) {
      checker.on_completion(done);
      lost += done.lost ? 1 : 0;
    };
  }
  WatchedRun(const WatchedRun&) = delete;
  WatchedRun& operator=(const WatchedRun&) = delete;

  JobId submit(const std::shared_ptr<const JobPlan>& plan, Bytes home_bytes = 0) {
    const JobId job(num_jobs_++);
    checker.submit(job, plan);
    shell.submit(job, plan, home_bytes);
    return job;
  }

  /// False when nothing is in flight.
  bool advance() {
    shell.engine().check_integrity();
    return shell.advance();
  }
  void run() {
    while (advance()) {
    }
  }
  /// Runs until `found()`; fails if it never holds.
  template <typename Found>
  void run_until(const Found& found) {
    while (!found()) {
      if (!advance()) throw std::logic_error("a run ended too early");
    }
  }
  /// Runs until the job has an op of this step in flight.
  void run_into_step(JobId job, std::int64_t step) {
    run_until([&] {
      const auto* op = actions.empty() ? nullptr : std::get_if<StartOp>(&actions.back());
      return op && op->job == job && op->step == step;
    });
  }

  /// Actions of one kind that satisfy `keep(action)`, in order.
  template <typename Kind, typename Keep>
  std::vector<Kind> all(const Keep& keep) const {
    std::vector<Kind> found;
    for (const Action& action : actions) {
      const auto* kind = std::get_if<Kind>(&action);
      if (kind && keep(*kind)) found.push_back(*kind);
    }
    return found;
  }
  template <typename Kind>
  std::vector<Kind> all() const {
    return all<Kind>([](const Kind&) { return true; });
  }

  const Engine& engine() const { return shell.engine(); }
  const JobTable& job(JobId id) const { return engine().job(id); }

  VirtualShell shell;
  ActionChecker checker;
  std::vector<Action> actions;
  int lost = 0;  ///< actions that ended this way

 private:
  std::size_t num_jobs_ = 0;
};

}  // namespace spillway::testing
