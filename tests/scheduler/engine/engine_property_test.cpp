#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/check/action_checker.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/random/random_workload.h"

namespace spillway {
namespace {

using testing::ActionChecker;
using testing::campaign_size;
using testing::from_environment;
using testing::make_workload;
using testing::Workload;

std::set<JobId> with_accidents(const Workload& workload) {
  std::set<JobId> jobs;
  for (const auto& accident : workload.accidents) jobs.insert(accident.job);
  return jobs;
}

/// Checks the jobs and devices of a finished run.
void check_end(const Workload& workload, const Engine& engine, const ActionChecker& checker) {
  EXPECT_EQ(checker.problems(), std::vector<std::string>{});
  EXPECT_TRUE(engine.all_ended());
  const auto unlucky = with_accidents(workload);
  std::size_t ops = 0;
  for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
    if (unlucky.contains(JobId(j))) continue;
    const JobPlan& plan = *workload.jobs[j];
    EXPECT_EQ(engine.job(JobId(j)).end, JobEnd::done);
    EXPECT_EQ(checker.steps(JobId(j)), plan.max_steps);
    for (std::int64_t step = 0; step <= plan.max_steps; ++step) {
      ops += plan.programs[plan.step_kind(step).index()]->ops.size();
    }
  }
  EXPECT_EQ(checker.ended().size(), workload.jobs.size());
  if (unlucky.empty()) {
    EXPECT_EQ(checker.ops_seen(), ops) << "every op exactly once";
  }
  for (std::size_t d = 0; d < engine.num_devices(); ++d) {
    const DeviceTable& device = engine.device(DeviceId(d));
    EXPECT_EQ(engine.copies(DeviceId(d)).used(), 0u) << "a device is empty at the end";
    EXPECT_LE(device.counters.peak_bytes, workload.config.device_budgets[d]);
  }
  EXPECT_EQ(engine.host_used(), 0u);
}

struct Outcome {
  ActionChecker checker;
  std::vector<JobEnd> ends;
};

/// Runs to the end. Every event checks the engine's tables and the work in flight.
Outcome run(const Workload& workload, std::string* log = nullptr) {
  VirtualShell shell(workload.config, workload.costs);
  Outcome outcome;
  ActionChecker& checker = outcome.checker;
  shell.on_action = [&](const Action& action) {
    checker.on_action(action);
    if (log) *log += std::to_string(action.index()) + "@" + std::to_string(shell.now_s()) + " ";
  };
  shell.on_completion = [&](const Done& done) { checker.on_completion(done); };
  for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
    checker.submit(JobId(j), workload.jobs[j]);
    shell.submit(JobId(j), workload.jobs[j]);
  }
  int events = 0;
  do {
    for (const auto& accident : workload.accidents) {
      if (accident.after_events != events) continue;
      accident.fails ? shell.fail_next(accident.job, "made to fail") : shell.stop(accident.job);
    }
    shell.engine().check_integrity();
    if (events % 32 == 0) shell.engine().check_visits();
    ++events;
  } while (shell.advance());
  check_end(workload, shell.engine(), checker);
  for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
    outcome.ends.push_back(shell.engine().job(JobId(j)).end);
  }
  return outcome;
}

std::uint64_t num_workloads() {
  return from_environment("SPILLWAY_PROPERTY_RUNS", campaign_size(2000, 150));
}

/// Jobs that fail or stop do not affect the others.
TEST(EngineProperty, KeepsInvariantsAndFinishesRandomWorkloads) {
  std::map<JobEnd, std::uint64_t> ends;
  for (std::uint64_t seed = 1; seed <= num_workloads(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (JobEnd end : run(make_workload(seed)).ends) ++ends[end];
    if (::testing::Test::HasFailure()) return;
  }
  if (num_workloads() < 100) return;
  EXPECT_GT(ends[JobEnd::failed], num_workloads() / 10);
  EXPECT_GT(ends[JobEnd::stopped], num_workloads() / 10);
  EXPECT_GT(ends[JobEnd::done], num_workloads());
}

TEST(EngineProperty, RunsPlacedTracksOnTheirDevices) {
  std::uint64_t made_for_devices = 0;
  for (std::uint64_t seed = 1; seed <= num_workloads() / 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Workload workload = make_workload(seed);
    for (const auto& plan : workload.jobs)
      made_for_devices += plan->track_devices.empty() ? 0u : 1u;
    EXPECT_EQ(run(workload).checker.strays(), 0u);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(made_for_devices, num_workloads() / 40);
}

TEST(EngineProperty, RepeatsTheRunForTheSameWorkload) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::string first, second;
    run(make_workload(seed), &first);
    run(make_workload(seed), &second);
    EXPECT_EQ(first, second);
  }
}

/// For any virtual nodes and budget, a shard's weights are copied to a device at most twice a step
/// (forward and backward), and once more for an evaluation.
TEST(EngineProperty, LoadsWeightsOfOneTrackAtMostTwiceAStep) {
  for (std::uint64_t seed = 1; seed <= num_workloads() / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload workload = make_workload(seed);
    workload.jobs.resize(1);
    workload.accidents.clear();
    const ActionChecker checker = run(workload).checker;
    const JobPlan& plan = *workload.jobs[0];
    for (const auto& [key, loads] : checker.weight_loads()) {
      const auto& [job, step, buffer] = key;
      const Program& program = *plan.programs[plan.step_kind(step).index()];
      EXPECT_LE(loads,
                static_cast<int>(program.unit_users[static_cast<std::size_t>(buffer)].size()))
          << "buffer " << buffer << " step " << step;
    }
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace spillway
