#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/virtual_shell.h"
#include "tests/support/action_checker.h"
#include "tests/support/elastic_workload.h"

/// Devices join, leave, are lost or hang; links slow down; jobs are stopped, fail, pause and change
/// their plan, at any moment. `SPILLWAY_PROPERTY_SEED=7 elastic_property_test` replays one run.
namespace spillway {
namespace {

using testing::ActionChecker;
using testing::Change;
using testing::ElasticWorkload;
using testing::RandomElasticWorkload;

/// One run to its end; every event checks the engine's tables and what is in flight.
class ElasticRun {
 public:
  explicit ElasticRun(const ElasticWorkload& workload)
      : workload_(workload), shell_(workload.config, workload.costs) {
    shell_.on_action = [this](const Action& action) {
      checker_.on_action(action);
      if (std::holds_alternative<StepRedone>(action)) ++redone;
      note(action);
    };
    shell_.on_completion = [this](const Done& done) {
      checker_.on_completion(done);
      lost += done.lost ? 1 : 0;
    };
    for (std::size_t j = 0; j < workload.plans.size(); ++j) {
      checker_.submit(JobId(j), workload.plans[j][0]);
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
      if (::testing::Test::HasFailure()) return;
    }
    check_end();
  }

  int redone = 0, lost = 0, rescued = 0;
  std::string log;  ///< every action with its time
  const ActionChecker& checker() const { return checker_; }

 private:
  const Engine& engine() const { return shell_.engine(); }

  void note(const Action& action) {
    log += std::to_string(action.index()) + "@" + std::to_string(shell_.now_s()) + " ";
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
    if (engine().idle()) shell_.add_device(workload_.ample), ++rescued;
    return true;
  }

  void expect_no_device_for(JobId job) const {
    for (std::size_t d = 0; d < engine().num_devices(); ++d) {
      const DeviceTable& device = engine().device(DeviceId(d));
      EXPECT_TRUE(device.state != DeviceState::usable ||
                  device.memory.budget() < engine().job(job).plan->needed_budget)
          << "job " << job.value << " starves beside device " << d;
    }
  }

  void check_end() const {
    EXPECT_EQ(checker_.problems(), std::vector<std::string>{});
    for (std::size_t j = 0; j < workload_.plans.size(); ++j) {
      if (unlucky_.contains(JobId(j))) continue;
      EXPECT_EQ(engine().job(JobId(j)).end, JobEnd::done);
      EXPECT_EQ(checker_.steps(JobId(j)), workload_.plans[j][0]->max_steps);
    }
    EXPECT_EQ(checker_.ended().size(), workload_.plans.size());
    for (std::size_t d = 0; d < engine().num_devices(); ++d) {
      const DeviceTable& device = engine().device(DeviceId(d));
      EXPECT_EQ(device.memory.used(), 0u);
      EXPECT_LE(device.counters.peak_bytes, device.memory.budget());
    }
    EXPECT_EQ(engine().host_used(), 0u);
    EXPECT_LE(engine().host_peak(), workload_.config.host_budget);
  }

  const ElasticWorkload& workload_;
  VirtualShell shell_;
  ActionChecker checker_;
  std::set<JobId> unlucky_;
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

std::uint64_t num_runs() { return from_environment("SPILLWAY_PROPERTY_RUNS", 10000); }

TEST(ElasticProperty, RunsHoldEveryInvariantAndNoJobStarves) {
  const std::uint64_t only = from_environment("SPILLWAY_PROPERTY_SEED", 0);
  int redone = 0, lost = 0, rescued = 0, replanned = 0;
  const std::uint64_t first = only ? only : 1, last = only ? only : num_runs();
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("SPILLWAY_PROPERTY_SEED=" + std::to_string(seed));
    const ElasticWorkload workload = RandomElasticWorkload(seed).make();
    ElasticRun run(workload);
    ASSERT_NO_THROW(run.run());
    if (::testing::Test::HasFailure()) return;
    redone += run.redone, lost += run.lost, rescued += run.rescued;
    replanned += run.checker().plan_changes();
  }
  std::printf("%d steps redone, %d actions lost, %d rescues, %d plan changes\n", redone, lost,
              rescued, replanned);
}

}  // namespace
}  // namespace spillway
