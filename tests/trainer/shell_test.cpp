#include "trainer/shell.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "spilling/file_store.h"
#include "spilling/memory_store.h"
#include "tests/support/checking_runner.h"
#include "tests/support/failing_store.h"
#include "tests/support/random_workload.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_pool.h"

namespace spillway {
namespace {

using testing::CheckingRunner;
using testing::FailingStore;
using testing::make_workload;
using testing::TemporaryFolder;
using testing::ThreadPool;
using testing::Workload;

struct Ends final : ShellObserver {
  void on_started(JobId) override {}
  void on_committed(JobId job, std::int64_t step) override { steps[job] = step; }
  void on_ended(JobId job, JobEnd end, const std::string& reason) override {
    ends[job] = end;
    reasons[job] = reason;
  }
  std::map<JobId, std::int64_t> steps;
  std::map<JobId, JobEnd> ends;
  std::map<JobId, std::string> reasons;
};

/// A real run: device threads, copy queues and host workers, with a runner that checks bytes.
class RealRun {
 public:
  /// Homes lie in `store`, or in memory.
  explicit RealRun(Workload w, Store* store = nullptr)
      : workload(std::move(w)),
        devices(make_devices()),
        home_store(*devices.front()),
        host(workload.config.host_budget, store ? *store : home_store),
        pool(2),
        shell(workload.config, pointers(), host, pool, runner, ends) {
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
      runner.add(JobId(j), workload.jobs[j]);
    }
  }

  void submit_all() {
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) shell.submit(JobId(j), workload.jobs[j]);
  }

  static std::uint64_t planned_ops(const JobPlan& plan) {
    std::uint64_t ops = 0;
    for (std::int64_t step = 0; step <= plan.max_steps; ++step) {
      ops += plan.programs[plan.flavor(step).index()]->ops.size();
    }
    return ops;
  }

  std::uint64_t planned_ops() const {
    std::uint64_t ops = 0;
    for (const auto& plan : workload.jobs) ops += planned_ops(*plan);
    return ops;
  }

  std::vector<std::unique_ptr<Device>> make_devices() const {
    std::vector<std::unique_ptr<Device>> made;
    for (Bytes budget : workload.config.device_budgets)
      made.push_back(make_cpu_device("cpu", budget));
    return made;
  }
  std::vector<Device*> pointers() const {
    std::vector<Device*> found;
    for (const auto& device : devices) found.push_back(device.get());
    return found;
  }

  Workload workload;
  std::vector<std::unique_ptr<Device>> devices;
  MemoryStore home_store;
  HostArena host;
  ThreadPool pool;
  CheckingRunner runner;
  Ends ends;
  Shell shell;
};

TEST(Shell, EveryByteArrivesInRandomWorkloads) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RealRun run(make_workload(seed));
    run.submit_all();
    run.shell.run();
    for (std::size_t j = 0; j < run.workload.jobs.size(); ++j) {
      EXPECT_EQ(run.ends.ends.at(JobId(j)), JobEnd::done) << run.ends.reasons.at(JobId(j));
      EXPECT_EQ(run.ends.steps[JobId(j)], run.workload.jobs[j]->max_steps);
    }
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
    EXPECT_EQ(run.host.in_use(), 0u);
    for (const DeviceCounters& device : run.shell.snapshot().devices) {
      EXPECT_GE(device.stall_s, 0);
    }
    if (HasFailure()) break;
  }
}

TEST(Shell, HomesMayLieInFiles) {
  const TemporaryFolder folder;
  FileStore store(folder.path());
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    RealRun run(make_workload(seed), &store);
    run.submit_all();
    run.shell.run();
    for (const auto& [job, end] : run.ends.ends) {
      EXPECT_EQ(end, JobEnd::done) << run.ends.reasons.at(job);
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
    RealRun run(make_workload(seed), &store);
    run.submit_all();
    run.shell.run();
    for (const auto& [job, end] : run.ends.ends) {
      EXPECT_EQ(end, job == JobId(0) ? JobEnd::failed : JobEnd::done) << run.ends.reasons.at(job);
    }
    EXPECT_EQ(run.ends.reasons.at(JobId(0)),
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
    EXPECT_EQ(run.ends.ends.at(JobId(0)), JobEnd::failed);
    EXPECT_EQ(run.ends.reasons.at(JobId(0)), "made to fail");
    for (std::size_t j = 1; j < run.workload.jobs.size(); ++j) {
      EXPECT_EQ(run.ends.ends.at(JobId(j)), JobEnd::done) << run.ends.reasons.at(JobId(j));
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
      EXPECT_NE(run.ends.ends.at(JobId(j)), JobEnd::failed);
    }
    EXPECT_EQ(run.host.in_use(), 0u);
  }
}

}  // namespace
}  // namespace spillway
