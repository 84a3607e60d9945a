#include <gtest/gtest.h>

#include <cstdlib>

#include "scheduler/virtual_shell.h"
#include "tests/support/action_checker.h"
#include "tests/support/random_workload.h"

namespace spillway {
namespace {

using testing::ActionChecker;
using testing::make_workload;
using testing::RandomWorkload;
using testing::Workload;

/// Runs to the end; every event checks the engine's tables and what is in flight.
ActionChecker run(const Workload& workload, std::string* log = nullptr) {
  VirtualShell shell(workload.config, workload.costs);
  ActionChecker checker;
  shell.on_action = [&](const Action& action) {
    checker.on_action(action);
    if (log) *log += std::to_string(action.index()) + "@" + std::to_string(shell.now_s()) + " ";
  };
  shell.on_completion = [&](const Done& done) { checker.on_completion(done); };
  for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
    checker.submit(JobId(j), workload.jobs[j]);
    shell.submit(JobId(j), workload.jobs[j]);
  }
  shell.engine().check_integrity();
  while (shell.advance()) shell.engine().check_integrity();
  EXPECT_EQ(checker.problems(), std::vector<std::string>{});
  EXPECT_TRUE(shell.engine().all_ended());
  std::size_t ops = 0;
  for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
    const JobPlan& plan = *workload.jobs[j];
    EXPECT_EQ(shell.engine().job(JobId(j)).end, JobEnd::done);
    EXPECT_EQ(checker.steps(JobId(j)), plan.max_steps);
    for (std::int64_t step = 0; step <= plan.max_steps; ++step) {
      ops += plan.programs[plan.flavor(step).index()]->ops.size();
    }
  }
  EXPECT_EQ(checker.ops_seen(), ops) << "every op exactly once";
  for (std::size_t d = 0; d < shell.engine().num_devices(); ++d) {
    const DeviceTable& device = shell.engine().device(DeviceId(d));
    EXPECT_EQ(device.memory.used(), 0u) << "a device is empty at the end";
    EXPECT_LE(device.counters.peak_bytes, workload.config.device_budgets[d]);
  }
  EXPECT_EQ(shell.engine().host_used(), 0u);
  return checker;
}

std::uint64_t num_workloads() {
  const char* count = std::getenv("SPILLWAY_PROPERTY_RUNS");
  return count ? std::strtoull(count, nullptr, 10) : 1000;
}

TEST(EngineProperty, RandomWorkloadsHoldEveryInvariantAndEnd) {
  for (std::uint64_t seed = 1; seed <= num_workloads(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run(make_workload(seed));
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(EngineProperty, TheSameWorkloadGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::string first, second;
    run(make_workload(seed), &first);
    run(make_workload(seed), &second);
    EXPECT_EQ(first, second);
  }
}

/// Few bytes: whatever the virtual nodes and the budget, a shard's weights go to a device at most
/// twice a step (forward and backward), and once more for an evaluation.
TEST(EngineProperty, WeightsOfOneLaneAreLoadedAtMostTwiceAStep) {
  for (std::uint64_t seed = 1; seed <= num_workloads() / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload workload = make_workload(seed);
    workload.jobs.resize(1);
    const ActionChecker checker = run(workload);
    const JobPlan& plan = *workload.jobs[0];
    for (const auto& [key, loads] : checker.weight_loads()) {
      const auto& [job, step, buffer] = key;
      const Program& program = *plan.programs[plan.flavor(step).index()];
      EXPECT_LE(loads,
                static_cast<int>(program.unit_users[static_cast<std::size_t>(buffer)].size()))
          << "buffer " << buffer << " step " << step;
    }
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(EngineProperty, AFailingOrStoppedJobLeavesTheOthersWhole) {
  for (std::uint64_t seed = 1; seed <= num_workloads() / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Workload workload = make_workload(seed);
    VirtualShell shell(workload.config, workload.costs);
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) shell.submit(JobId(j), workload.jobs[j]);
    RandomWorkload random(seed + 1'000'000);
    for (int i = random.between(0, 60); i > 0; --i) shell.advance();
    const bool fails = random.chance(50);
    fails ? shell.fail_next(JobId(0), "made to fail") : shell.stop(JobId(0));
    while (shell.advance()) shell.engine().check_integrity();
    ASSERT_TRUE(shell.engine().all_ended());
    for (std::size_t j = 1; j < workload.jobs.size(); ++j) {
      EXPECT_EQ(shell.engine().job(JobId(j)).end, JobEnd::done);
      EXPECT_EQ(shell.engine().job(JobId(j)).step, workload.jobs[j]->max_steps);
    }
    EXPECT_EQ(shell.engine().host_used(), 0u);
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace spillway
