#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/check/action_checker.h"
#include "tests/support/random/elastic_workload.h"

namespace spillway::testing {

/// One run of an elastic workload. Every event checks the engine's tables; a checker watches the
/// actions after `tamper`.
class ElasticRun {
 public:
  explicit ElasticRun(const ElasticWorkload& workload)
      : workload_(workload), shell_(workload.config, workload.costs) {
    shell_.on_action = [this](const Action& action) {
      Action seen = action;
      if (!tamper || tamper(seen)) checker.on_action(seen);
      std::visit([this](const auto& a) { note(a); }, action);
      log += std::to_string(action.index()) + "@" + std::to_string(shell_.now_s()) + " ";
    };
    shell_.on_completion = [this](const Done& done) {
      checker.on_completion(done);
      counts.lost += done.lost ? 1 : 0;
    };
    while (num_submitted_ < workload.first_jobs) submit();
  }

  void run() {
    for (int event = 0;; ++event) {
      ASSERT_LT(event, 200'000) << "the run has no end";
      for (const Change& change : workload_.changes) {
        if (change.after_events == event) make(change);
      }
      if (event % 7 == 0) release_interrupted();
      engine().check_integrity();
      if (event % 32 == 0) engine().check_visits();
      if (!shell_.advance() && !go_on()) break;
    }
  }

  /// Checks that every job without a stop or failure is done, every budget was kept, and nothing is
  /// left.
  void expect_good_end() const {
    EXPECT_EQ(checker.problems(), std::vector<std::string>{});
    for (std::size_t j = 0; j < workload_.plans.size(); ++j) {
      if (unlucky_.contains(JobId(j))) continue;
      EXPECT_EQ(engine().job(JobId(j)).end, JobEnd::done);
      if (finished_.contains(JobId(j))) continue;
      EXPECT_EQ(checker.steps(JobId(j)), workload_.plans[j][0]->max_steps);
    }
    EXPECT_EQ(checker.ended().size(), workload_.plans.size());
    for (std::size_t d = 0; d < engine().num_devices(); ++d) {
      const DeviceTable& device = engine().device(DeviceId(d));
      const Residency& copies = engine().copies(DeviceId(d));
      EXPECT_EQ(copies.used(), 0u);
      EXPECT_LE(device.counters.peak_bytes, copies.budget());
    }
    EXPECT_EQ(engine().host_used(), 0u);
    EXPECT_LE(engine().host_peak(), workload_.config.host_budget);
  }

  /// What has happened so far.
  struct Counts {
    int redone = 0, lost = 0, replanned = 0, removed = 0, stopped = 0, failed = 0, done = 0;
    int moved = 0;  ///< copies from device to device
    int lent = 0;   ///< of these, copies beside the original
    int kept = 0;   ///< sums that come back to a device
    int rested = 0;
    int done_early = 0;
    int graphs_used = 0, graphs_dropped = 0;
    int interrupted = 0;
    void operator+=(const Counts& other) {
      redone += other.redone, lost += other.lost, replanned += other.replanned;
      removed += other.removed, stopped += other.stopped, failed += other.failed;
      done += other.done, moved += other.moved, rested += other.rested;
      done_early += other.done_early, lent += other.lent, kept += other.kept;
      graphs_used += other.graphs_used, graphs_dropped += other.graphs_dropped;
      interrupted += other.interrupted;
    }
  };
  Counts counts;
  std::string log;  ///< every action with its time
  ActionChecker checker;
  std::function<bool(Action&)> tamper;  ///< false: hidden from the checker

  const Engine& engine() const { return shell_.engine(); }

 private:
  template <typename Other>
  void note(const Other&) {}
  void note(const StepRedone&) { ++counts.redone; }
  void note(const StartOp& op) {
    const Program& program = *engine().job(op.job).plan->programs[op.step_kind];
    const bool uses_graph = op.has_graph && program.ops[at(op.op)].kind == OpKind::backward;
    counts.graphs_used += uses_graph ? 1 : 0;
  }
  void note(const DropGraph&) { ++counts.graphs_dropped; }
  void note(const StartCopy& copy) {
    const auto& buffers = engine().job(copy.job).plan->layout.buffers;
    const bool is_sum = buffers[at(copy.buffer)].kind == BufferKind::sum;
    counts.moved += copy.peer.valid() ? 1 : 0;
    counts.lent += copy.is_shared ? 1 : 0;
    counts.kept += is_sum && copy.direction == CopyDirection::to_device ? 1 : 0;
  }
  void note(const PlanChanged&) { ++counts.replanned; }
  void note(const JobInterrupted& interrupted) {
    ++counts.interrupted;
    resting_.insert(interrupted.job);
  }
  void note(const DeviceLeft& left) { counts.removed += left.lost ? 0 : 1; }
  void note(const JobRested& rested) {
    ++counts.rested;
    const JobTable& job = engine().job(rested.job);
    EXPECT_TRUE(job.suspended || rested.step >= job.hold.step) << "nothing holds it";
    EXPECT_FALSE(job.finishes);
  }
  void note(const JobEnded& ended) {
    const bool is_early = checker.steps(ended.job) < checker.max_steps(ended.job);
    counts.done_early += ended.end == JobEnd::done && is_early ? 1 : 0;
    ++(ended.end == JobEnd::done      ? counts.done
       : ended.end == JobEnd::stopped ? counts.stopped
                                      : counts.failed);
  }

  void submit() {
    const std::size_t job = num_submitted_++;
    checker.submit(JobId(job), workload_.plans[job][0]);
    shell_.submit(JobId(job), workload_.plans[job][0], workload_.home_bytes(job));
  }

  void make(const Change& change) {
    using Kind = Change::Kind;
    if (change.kind == Kind::submit) {
      if (num_submitted_ < workload_.plans.size()) submit();
      return;
    }
    if (change.job.index() >= num_submitted_) return;
    const DeviceId device(static_cast<std::size_t>(change.device) % engine().num_devices());
    switch (change.kind) {
      case Change::Kind::join:
        shell_.add_device(change.budget);
        return;
      case Change::Kind::remove:
        return shell_.remove_device(device);
      case Change::Kind::lose:
        return shell_.lose_device(device);
      case Change::Kind::hang:
        return shell_.hang_device(device, change.seconds);
      case Change::Kind::link:
        return shell_.set_link(device, change.bytes_per_s);
      case Change::Kind::stop:
        unlucky_.insert(change.job);
        return shell_.stop(change.job);
      case Change::Kind::fail:
        unlucky_.insert(change.job);
        return shell_.fail_next(change.job, "made to fail");
      case Change::Kind::pause:
        return shell_.pause(change.job);
      case Change::Kind::resume:
        return shell_.resume(change.job);
      case Change::Kind::resize:
        return shell_.resize(change.job, workload_.plans[change.job.index()][change.plan]);
      case Change::Kind::hold:
        return shell_.hold(change.job, change.hold);
      case Change::Kind::suspend:
        return shell_.suspend(change.job, true);
      case Change::Kind::let_go:
        return shell_.suspend(change.job, false);
      case Change::Kind::interrupt:
        next_plans_[change.job] = change.plan;
        return shell_.interrupt(change.job);
      case Change::Kind::lose_exchanges:
        next_plans_[change.job] = change.plan;
        return shell_.lose_exchanges(change.job);
      case Change::Kind::finish:
        finished_.insert(change.job);
        return shell_.finish(change.job);
      case Change::Kind::submit:
        return;
    }
  }

  void release_interrupted() {
    for (JobId job : std::exchange(resting_, {})) {
      checker.go_on(job);
      shell_.go_on(job, workload_.plans[job.index()][next_plans_[job]], job.value % 2 == 0);
    }
  }

  /// Called when nothing is in flight. Checks that no runnable job waits, submits and releases all
  /// jobs, and adds a large device. Returns false if all jobs have ended.
  bool go_on() {
    const bool all_came = num_submitted_ == workload_.plans.size();
    while (num_submitted_ < workload_.plans.size()) submit();
    if (engine().all_ended()) return false;
    bool paused = !all_came, running = false;
    for (std::size_t j = 0; j < workload_.plans.size(); ++j) {
      const JobTable& job = engine().job(JobId(j));
      running |= job.phase == JobPhase::running;
      if (job.phase == JobPhase::running && engine().idle()) expect_no_device_for(JobId(j));
      paused |= (job.paused || job.resting || job.interrupted) && job.phase == JobPhase::settling;
      shell_.suspend(JobId(j), false);
      shell_.hold(JobId(j), {});
      shell_.resume(JobId(j));
    }
    EXPECT_TRUE(paused || running) << "nothing holds the jobs up";
    release_interrupted();
    if (engine().idle()) shell_.add_device(workload_.ample);
    return true;
  }

  void expect_no_device_for(JobId job) const {
    for (std::size_t d = 0; d < engine().num_devices(); ++d) {
      const DeviceTable& device = engine().device(DeviceId(d));
      EXPECT_TRUE(device.state != DeviceState::usable ||
                  engine().copies(DeviceId(d)).budget() < engine().job(job).plan->needed_budget ||
                  engine().job(job).plan->avoids(DeviceId(d)))
          << "job " << job.value << " starves beside device " << d;
    }
  }

  const ElasticWorkload& workload_;
  VirtualShell shell_;
  std::size_t num_submitted_ = 0;
  std::set<JobId> unlucky_, finished_;
  std::set<JobId> resting_;                  // interrupted, and told
  std::map<JobId, std::size_t> next_plans_;  // of those that were interrupted
};

}  // namespace spillway::testing
