#include "trainer/runtime/shell.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "scheduler/plan/lower.h"
#include "spilling/tiers/file_store.h"
#include "tests/support/disk/failing_store.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/small_model.h"
#include "tests/support/run/real_run.h"

namespace spillway::testing {
namespace {

TEST(Shell, MovesEveryByteOfRandomWorkloads) {
  std::uint64_t moves = 0;
  for_seeds(60, [&](std::uint64_t seed) {
    RealRun run(make_workload(seed));
    run.run_all();
    run.expect_all_done();
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
    for (const DeviceCounters& device : run.shell.snapshot().devices) {
      EXPECT_GE(device.stall_s, 0);
      moves += device.moves;
    }
  });
  EXPECT_GT(moves, 60u) << "from device to device";
}

/// The runner fails a backward whose graph is not there, or needs bytes that have moved.
TEST(Shell, KeepsGraphsAndWhatTheyNeed) {
  std::uint64_t kept = 0;
  for_seeds(60, [&](std::uint64_t seed) {
    RealRun run(make_strategies(seed));
    run.run_all();
    run.expect_all_done();
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
    for (const DeviceCounters& device : run.shell.snapshot().devices) kept += device.kept_graphs;
  });
  EXPECT_GT(kept, 60u);
}

TEST(Shell, ReportsTheStateToAnyThread) {
  std::vector<std::future<Shell::Status>> asked;
  std::future<Shell::Status> too_late;
  {
    RealRun run(make_workload(3));
    run.submit_all();
    asked.push_back(run.shell.status());
    std::atomic<bool> ended = false;
    std::thread asker([&] {
      while (!ended && asked.size() < 1000) asked.push_back(run.shell.status());
    });
    run.shell.run();
    ended = true;
    asker.join();
    too_late = run.shell.status();
  }
  EXPECT_THROW(too_late.get(), std::future_error);
  const Shell::Status first = asked.front().get();
  EXPECT_FALSE(first.engine.under_way.empty());
  for (const auto& [id, span] : first.engine.under_way) {
    EXPECT_GT(span.started_s, 0);
    EXPECT_LE(span.started_s, first.now_s);
  }
}

/// Exchanges are lost at random; the job goes on with a plan for other hosts.
TEST(Shell, GoesOnAfterLostExchanges) {
  int interrupted = 0, redone = 0;
  for_seeds(20, [&](std::uint64_t seed) {
    const ModelSpec model = chain(4);
    std::vector<std::shared_ptr<const JobPlan>> plans;
    Bytes home_bytes = 0;
    for (const std::vector<int>& groups : {std::vector{2, 2, 2}, {0, 4, 2}, {0, 6, 0}}) {
      const JobShape shape{.virtual_nodes = 6,
                           .groups = 6,
                           .lane_groups = {groups[1]},
                           .eval_virtual_nodes = 2,
                           .max_steps = 4,
                           .eval_steps = 2,
                           .host_groups = groups,
                           .host = 1};
      plans.push_back(std::make_shared<JobPlan>(
          lower(model, profile_of(model), shape, {{0, 2}, {2, 4}}, false)));
      home_bytes = std::max(home_bytes, plans.back()->layout.home_bytes);
    }
    Workload workload{.config = {.device_budgets = {64_MiB, 64_MiB},
                                 .host_budget = 1_GiB,
                                 .policy = make_policy("fifo")},
                      .jobs = {plans[0]}};
    RealRun run(std::move(workload));
    std::mt19937_64 random(seed);
    std::int64_t most = 4;  // step where it is interrupted at the latest
    run.runner.exchanging = [&] { return random() % 12 == 0; };
    run.heard.interrupted = [&](const JobInterrupted& news) {
      ++interrupted;
      const std::int64_t step = run.heard.steps[news.job];
      EXPECT_EQ(news.step, step);
      EXPECT_LE(step, most);
      const bool one_step = random() % 2 == 0;
      most = one_step ? step + 1 : 4;
      run.shell.go_on(news.job, plans[random() % plans.size()], one_step);
    };
    run.shell.submit(JobId(0), plans[0], home_bytes);
    run.shell.run();
    run.expect_done(JobId(0));
    redone += run.heard.redone[JobId(0)];
  });
  EXPECT_GT(interrupted, 20);
  EXPECT_GT(redone, 20);
}

TEST(Shell, KeepsHomesInFiles) {
  const TemporaryFolder folder;
  FileStore store(folder.path());
  for_seeds(10, [&](std::uint64_t seed) {
    RealRun run(make_workload(seed), {}, {}, &store);
    run.run_all();
    run.expect_all_done();
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
  });
}

TEST(Shell, FailsOnlyTheJobWithoutRoomForItsHome) {
  const auto device = make_cpu_device("cpu", 1_MiB);
  MemoryStore memory(*device);
  for_seeds(10, [&](std::uint64_t seed) {
    FailingStore store(memory, 0);
    RealRun run(make_workload(seed), {}, {}, &store);
    run.run_all();
    int failed = 0;  // the order of requests for homes is random
    for (const auto& [job, end] : run.heard.ends) {
      if (end == JobEnd::done) continue;
      ++failed;
      EXPECT_EQ(run.heard.reasons.at(job),
                "disk space: a store made to fail asked for " +
                    format_bytes(run.workload.jobs[job.index()]->layout.home_bytes) +
                    " but 17 B are left");
    }
    EXPECT_EQ(failed, 1);
  });
}

TEST(Shell, DetectsWrongBytes) {  // negative control of the test above
  RealRun run(make_workload(1));
  CheckingRunner& runner = run.runner;
  const auto plan = run.workload.jobs[0];
  std::vector<std::byte> bytes(plan->layout.home_bytes);
  const Home home(bytes.data());
  runner.admit(JobId(0), home);
  const std::size_t finishing =
      plan->programs[plan->step_kind(plan->max_steps).index()]->host_ops.size() - 1;
  HostCall call{.job = JobId(0),
                .step = 0,
                .plan = plan,
                .program = plan->programs[plan->step_kind(plan->max_steps).index()].get(),
                .op = static_cast<int>(finishing),
                .home = &home};
  EXPECT_NO_THROW(runner.run_host_op(call));
  *home.at(plan->layout.buffers[static_cast<std::size_t>(plan->layout.weights[0])].home) ^=
      std::byte{1};
  EXPECT_THROW(runner.run_host_op(call), std::runtime_error);
}

TEST(Shell, FailsOneJobAloneWithItsReason) {
  for_seeds(20, [&](std::uint64_t seed) {
    RealRun run(make_workload(seed));
    run.runner.fail_at(JobId(0), 1 + seed % RealRun::planned_ops(*run.workload.jobs[0]));
    run.run_all();
    run.expect_failed(JobId(0), "made to fail");
    for (std::size_t j = 1; j < run.workload.jobs.size(); ++j) run.expect_done(JobId(j));
  });
}

TEST(Shell, StopsJobsAfterTheirRunningOps) {
  for_seeds(10, [&](std::uint64_t seed) {
    RealRun run(make_workload(seed));
    run.submit_all();
    std::thread stopper([&] { run.shell.stop_all(); });
    run.shell.run();
    stopper.join();
    for (const auto& [job, end] : run.heard.ends) EXPECT_NE(end, JobEnd::failed);
    EXPECT_EQ(run.heard.ends.size(), run.workload.jobs.size());
    EXPECT_EQ(run.host.in_use(), 0u);
  });
}

/// A workload of at least two jobs whose homes lie in memory at the same time.
Workload two_jobs() {
  for (std::uint64_t seed = 1;; ++seed) {
    Workload workload = make_workload(seed);
    if (workload.jobs.size() < 2) continue;
    workload.jobs.resize(2);
    workload.config.host_budget =
        workload.jobs[0]->layout.all_home_bytes() + workload.jobs[1]->layout.home_bytes;
    return workload;
  }
}

bool comes(std::future<void>& event) {
  return event.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
}

TEST(Shell, DoesNotWaitForASlowRelease) {
  RealRun run(two_jobs());
  std::promise<void> releasing, other_ended, answering;
  auto released = releasing.get_future(), ended = other_ended.get_future();
  auto answered = answering.get_future();
  bool waited = false;
  run.runner.released = [&](JobId job, JobEnd) {
    if (job == JobId(1)) return;
    releasing.set_value();
    waited = comes(ended) && comes(answered);  // until then run() goes on
  };
  run.heard.ended = [&](JobId job) {
    if (job == JobId(1)) other_ended.set_value();
  };
  std::thread stopper([&] {
    EXPECT_TRUE(comes(released));
    auto status = run.shell.status();  // answered meanwhile
    EXPECT_EQ(status.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    answering.set_value();
    run.shell.stop(JobId(1));
  });
  run.submit_all();
  run.shell.stop(JobId(0));
  run.shell.run();
  stopper.join();
  EXPECT_TRUE(waited);
  EXPECT_EQ(run.host.in_use(), 0u);
}

/// A store whose first allocation completes only after other allocations.
class SlowStore final : public Store {
 public:
  SlowStore(Store& store, std::future<void>& opened) : store_(store), opened_(opened) {}
  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override {
    if (calls_++ == 0) came_ = comes(opened_);
    return store_.allocate(bytes);
  }
  bool came() const { return came_; }

 private:
  Store& store_;
  std::future<void>& opened_;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> came_ = false;
};

TEST(Shell, DoesNotWaitForASlowHome) {
  std::promise<void> one_ended;
  auto ended = one_ended.get_future();
  const auto device = make_cpu_device("cpu", 1_MiB);
  MemoryStore memory(*device);
  SlowStore store(memory, ended);
  RealRun run(two_jobs(), {}, {}, &store);
  int ends = 0;
  run.heard.ended = [&](JobId) {
    if (++ends == 1) one_ended.set_value();
  };
  run.run_all();
  EXPECT_TRUE(store.came());
  run.expect_all_done();
}

TEST(Shell, FailsAJobWhoseReleaseFails) {
  RealRun run(two_jobs());
  run.runner.released = [](JobId job, JobEnd) {
    if (job == JobId(0)) throw std::runtime_error("no last checkpoint");
  };
  run.run_all();
  run.expect_failed(JobId(0), "no last checkpoint");
  run.expect_done(JobId(1));
}

/// If the shell's thread throws, another thread may still read a home, for example the writer of a
/// checkpoint. release() waits for it, so it must run before the home is freed.
TEST(Shell, ReleasesHomesIfRunThrows) {
  for_seeds(10, [&](std::uint64_t seed) {
    std::mutex mutex;
    std::map<JobId, const std::byte*> homes;
    int released = 0;
    {
      RealRun run(make_workload(seed));
      run.runner.admitted = [&](JobId job, const std::byte* home) {
        const std::lock_guard lock(mutex);
        homes[job] = home;
      };
      run.runner.released = [&](JobId job, JobEnd) {
        const std::lock_guard lock(mutex);
        const volatile std::byte* const home = homes.at(job);
        (void)*home;  // ends the program if the home is freed
        homes.erase(job);
        ++released;
      };
      run.heard.committed = [](JobId, std::int64_t) { throw std::runtime_error("made to throw"); };
      run.submit_all();
      EXPECT_THROW(run.shell.run(), std::runtime_error);
    }
    EXPECT_GT(released, 0);
    EXPECT_TRUE(homes.empty());
  });
}

TEST(Shell, FailsOneJobAloneOnAForeignException) {
  RealRun run(two_jobs());
  run.runner.before_op = [](const OpCall& call) {
    if (call.job == JobId(0)) throw 7;
  };
  run.run_all();
  run.expect_failed(JobId(0),
                    "an exception was thrown whose type is not derived from std::exception");
  run.expect_done(JobId(1));
}

}  // namespace
}  // namespace spillway::testing
