#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/check/action_checker.h"
#include "tests/support/random/elastic_workload.h"

namespace spillway::testing {

/// One run of an elastic workload. Every event checks the engine's tables; a checker watches the
/// actions, as `tamper` leaves them.
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
    for (std::size_t j = 0; j < workload.plans.size(); ++j) {
      checker.submit(JobId(j), workload.plans[j][0]);
      shell_.submit(JobId(j), workload.plans[j][0], workload.home_bytes(j));
    }
  }

  void run() {
    for (int event = 0;; ++event) {
      ASSERT_LT(event, 200'000) << "the run has no end";
      for (const Change& change : workload_.changes) {
        if (change.after_events == event) make(change);
      }
      engine().check_integrity();
      if (event % 32 == 0) engine().check_visits();
      if (!shell_.advance() && !go_on()) break;
    }
  }

  /// Every job that nobody stopped or made fail is done, every budget was held, nothing is left.
  void expect_good_end() const {
    EXPECT_EQ(checker.problems(), std::vector<std::string>{});
    for (std::size_t j = 0; j < workload_.plans.size(); ++j) {
      if (unlucky_.contains(JobId(j))) continue;
      EXPECT_EQ(engine().job(JobId(j)).end, JobEnd::done);
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

  /// What has happened.
  struct Counts {
    int redone = 0, lost = 0, replanned = 0, removed = 0, stopped = 0, failed = 0, done = 0;
    int moved = 0;  ///< copies from device to device
    void operator+=(const Counts& other) {
      redone += other.redone, lost += other.lost, replanned += other.replanned;
      removed += other.removed, stopped += other.stopped, failed += other.failed;
      done += other.done, moved += other.moved;
    }
  };
  Counts counts;
  std::string log;  ///< every action with its time
  ActionChecker checker;
  std::function<bool(Action&)> tamper;  ///< false: the checker does not see it

  const Engine& engine() const { return shell_.engine(); }

 private:
  template <typename Other>
  void note(const Other&) {}
  void note(const StepRedone&) { ++counts.redone; }
  void note(const StartCopy& copy) { counts.moved += copy.peer.valid() ? 1 : 0; }
  void note(const PlanChanged&) { ++counts.replanned; }
  void note(const DeviceLeft& left) { counts.removed += left.lost ? 0 : 1; }
  void note(const JobEnded& ended) {
    ++(ended.end == JobEnd::done      ? counts.done
       : ended.end == JobEnd::stopped ? counts.stopped
                                      : counts.failed);
  }

  void make(const Change& change) {
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
    }
  }

  /// Nothing is in flight. Paused jobs go on, then a device joins that any plan fits: before, no
  /// job may have waited that could have run. False where all have ended.
  bool go_on() {
    if (engine().all_ended()) return false;
    bool paused = false, running = false;
    for (std::size_t j = 0; j < workload_.plans.size(); ++j) {
      const JobTable& job = engine().job(JobId(j));
      running |= job.phase == JobPhase::running;
      if (job.phase == JobPhase::running) expect_no_device_for(JobId(j));
      paused |= job.paused && job.phase == JobPhase::settling;
      shell_.resume(JobId(j));
    }
    EXPECT_TRUE(paused || running) << "nothing holds the jobs up";
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
  std::set<JobId> unlucky_;
};

}  // namespace spillway::testing
