#include "trainer/shell.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "spilling/file_store.h"
#include "tests/support/failing_store.h"
#include "tests/support/real_run.h"
#include "tests/support/temporary_folder.h"

namespace spillway {
namespace {

using testing::CheckingRunner;
using testing::FailingStore;
using testing::make_workload;
using testing::RealRun;
using testing::TemporaryFolder;

TEST(Shell, EveryByteArrivesInRandomWorkloads) {
  std::uint64_t moves = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RealRun run(make_workload(seed));
    run.submit_all();
    run.shell.run();
    for (std::size_t j = 0; j < run.workload.jobs.size(); ++j) {
      EXPECT_EQ(run.heard.ends.at(JobId(j)), JobEnd::done) << run.heard.reasons.at(JobId(j));
      EXPECT_EQ(run.heard.steps[JobId(j)], run.workload.jobs[j]->max_steps);
    }
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
    EXPECT_EQ(run.host.in_use(), 0u);
    for (const DeviceCounters& device : run.shell.snapshot().devices) {
      EXPECT_GE(device.stall_s, 0);
      moves += device.moves;
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(moves, 60u) << "from device to device";
}

TEST(Shell, TellsAnyThreadWhatIsUnderWay) {
  std::vector<std::future<Shell::Moment>> asked;
  std::future<Shell::Moment> too_late;
  {
    RealRun run(make_workload(3));
    run.submit_all();
    asked.push_back(run.shell.moment());
    std::atomic<bool> ended = false;
    std::thread asker([&] {
      while (!ended && asked.size() < 1000) asked.push_back(run.shell.moment());
    });
    run.shell.run();
    ended = true;
    asker.join();
    too_late = run.shell.moment();
  }
  EXPECT_THROW(too_late.get(), std::future_error);
  const Shell::Moment first = asked.front().get();
  EXPECT_FALSE(first.engine.under_way.empty());
  for (const auto& [id, span] : first.engine.under_way) {
    EXPECT_GT(span.started_s, 0);
    EXPECT_LE(span.started_s, first.now_s);
  }
}

TEST(Shell, HomesMayLieInFiles) {
  const TemporaryFolder folder;
  FileStore store(folder.path());
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    RealRun run(make_workload(seed), {}, {}, &store);
    run.submit_all();
    run.shell.run();
    for (const auto& [job, end] : run.heard.ends) {
      EXPECT_EQ(end, JobEnd::done) << run.heard.reasons.at(job);
    }
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
    EXPECT_EQ(run.host.in_use(), 0u);
  }
}

TEST(Shell, AJobWhoseHomeHasNoRoomFailsAlone) {
  const auto device = make_cpu_device("cpu", 1_MiB);
  MemoryStore memory(*device);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FailingStore store(memory, 0);
    RealRun run(make_workload(seed), {}, {}, &store);
    run.submit_all();
    run.shell.run();
    for (const auto& [job, end] : run.heard.ends) {
      EXPECT_EQ(end, job == JobId(0) ? JobEnd::failed : JobEnd::done) << run.heard.reasons.at(job);
    }
    EXPECT_EQ(run.heard.reasons.at(JobId(0)),
              "disk space: a store made to fail asked for " +
                  format_bytes(run.workload.jobs[0]->layout.home_bytes) + " but 17 B are left");
    EXPECT_EQ(run.host.in_use(), 0u);
  }
}

TEST(Shell, TheRunnerNoticesWrongBytes) {  // negative control of the test above
  RealRun run(make_workload(1));
  CheckingRunner& runner = run.runner;
  const auto plan = run.workload.jobs[0];
  std::vector<std::byte> home(plan->layout.home_bytes);
  runner.admit(JobId(0), home.data());
  const std::size_t finishing =
      plan->programs[plan->flavor(plan->max_steps).index()]->host_ops.size() - 1;
  HostCall call{.job = JobId(0),
                .step = 0,
                .plan = plan,
                .program = plan->programs[plan->flavor(plan->max_steps).index()].get(),
                .op = static_cast<int>(finishing),
                .home = home.data()};
  EXPECT_NO_THROW(runner.run_host_op(call));
  home[plan->layout.buffers[static_cast<std::size_t>(plan->layout.weights[0])].home] ^=
      std::byte{1};
  EXPECT_THROW(runner.run_host_op(call), std::runtime_error);
}

TEST(Shell, AFailingJobFailsAloneWithItsReason) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RealRun run(make_workload(seed));
    run.runner.fail_at(JobId(0), 1 + seed % RealRun::planned_ops(*run.workload.jobs[0]));
    run.submit_all();
    run.shell.run();
    EXPECT_EQ(run.heard.ends.at(JobId(0)), JobEnd::failed);
    EXPECT_EQ(run.heard.reasons.at(JobId(0)), "made to fail");
    for (std::size_t j = 1; j < run.workload.jobs.size(); ++j) {
      EXPECT_EQ(run.heard.ends.at(JobId(j)), JobEnd::done) << run.heard.reasons.at(JobId(j));
    }
    EXPECT_EQ(run.host.in_use(), 0u);
  }
}

TEST(Shell, StopEndsEveryJobAfterItsRunningOps) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    RealRun run(make_workload(seed));
    run.submit_all();
    std::thread stopper([&] { run.shell.stop_all(); });
    run.shell.run();
    stopper.join();
    for (std::size_t j = 0; j < run.workload.jobs.size(); ++j) {
      EXPECT_NE(run.heard.ends.at(JobId(j)), JobEnd::failed);
    }
    EXPECT_EQ(run.host.in_use(), 0u);
  }
}

}  // namespace
}  // namespace spillway
