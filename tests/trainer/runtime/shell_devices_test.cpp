#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "tests/support/check/resident.h"
#include "tests/support/run/real_run.h"

/// Devices fail, hang, shrink, join and leave under a real shell. Every byte is checked.
namespace spillway::testing {
namespace {

constexpr DeviceFault fault(DeviceFault::Kind kind, std::uint64_t after_ops) {
  return {kind, after_ops};
}

/// With two devices at least.
Workload shared_workload(std::uint64_t seed) {
  Workload workload = make_workload(seed);
  auto& budgets = workload.config.device_budgets;
  if (budgets.size() == 1) budgets.push_back(budgets.front());
  return workload;
}

void run_to_the_end(RealRun& run) {
  run.run_all();
  run.expect_all_done();
  EXPECT_GE(run.runner.kept(), run.planned_ops());
}

int total_redone(const RealRun& run) {
  int total = 0;
  for (const auto& [job, times] : run.heard.redone) total += times;
  return total;
}

TEST(ShellDevices, RepeatsTheStepOfAFailedDevice) {
  int losses = 0, redone = 0;
  for_seeds(40, [&](std::uint64_t seed) {
    RealRun run(shared_workload(seed), {{.fault = fault(DeviceFault::Kind::fail, seed % 13)}});
    run_to_the_end(run);
    for (const auto& left : run.heard.left) {
      EXPECT_EQ(left.device, DeviceId(0));
      EXPECT_TRUE(left.lost);
      EXPECT_EQ(left.why, "simulated failure after " + std::to_string(seed % 13) + " ops");
    }
    losses += static_cast<int>(run.heard.left.size());
    redone += total_redone(run);
  });
  EXPECT_GE(losses, 30);
  EXPECT_GE(redone, 10);
}

TEST(ShellDevices, GivesUpAHangingDevice) {
  for_seeds(3, [&](std::uint64_t seed) {
    RealRun run(shared_workload(seed), {{.fault = fault(DeviceFault::Kind::hang, seed)}},
                {.least_s = 2, .factor = 0});
    run_to_the_end(run);
    ASSERT_EQ(run.heard.left.size(), 1u);
    EXPECT_TRUE(run.heard.left[0].lost);
    EXPECT_EQ(run.heard.left[0].why, "it gave no sign of life in time");
  });
}

/// The op of a slow device ends after the run and has no effect.
TEST(ShellDevices, IgnoresALateOp) {
  std::promise<void> over;
  std::shared_future<void> until = over.get_future().share();
  std::atomic<bool> first = true;
  {
    RealRun run(shared_workload(3), {}, {.least_s = 2, .factor = 0});
    run.runner.before_op = [&](const OpCall&) {
      if (first.exchange(false)) until.wait();
    };
    std::size_t ends = 0;
    run.heard.ended = [&](JobId) {
      if (++ends == run.workload.jobs.size()) over.set_value();
    };
    run_to_the_end(run);
    EXPECT_EQ(run.heard.left.size(), 1u);
    EXPECT_LT(run.runner.kept(), run.runner.ops());
  }
}

TEST(ShellDevices, WaitsForADevice) {
  for_seeds(10, [&](std::uint64_t seed) {
    Workload workload = make_workload(seed);
    std::vector<CpuSwitches> faults;
    for (std::size_t d = 0; d < workload.config.device_budgets.size(); ++d) {
      faults.push_back({.fault = fault(DeviceFault::Kind::fail, seed + d)});
    }
    RealRun run(std::move(workload), faults);
    const std::size_t num_devices = run.devices.size();
    run.heard.when_left = [&](const auto&) {
      if (run.heard.left.size() == num_devices)
        run.shell.add_device(run.new_device(), RealRun::kTouched);
    };
    run_to_the_end(run);
    if (run.heard.left.size() < num_devices) return;  // ended before
    EXPECT_EQ(run.heard.joined, std::vector{DeviceId(num_devices)});
    EXPECT_EQ(run.runner.warmed(), num_devices + 1);
    EXPECT_GT(run.shell.snapshot().devices.back().ops, 0u);
  });
}

/// The memory that a shell without jobs adds to the memory in use.
Bytes taken_at_start(Bytes touched) {
  const auto device = make_cpu_device("cpu:0", 64_MiB);
  MemoryStore store(*device);
  HostArena host(64_MiB, store);
  ThreadPool pool(1);
  CheckingRunner runner;
  Heard heard;
  const Bytes before = resident_bytes();
  const Shell shell({.device_budgets = {64_MiB}, .policy = make_policy("fifo")}, {device.get()},
                    host, pool, runner, heard, nullptr, {.touched = touched});
  device->compute().record().wait();
  return resident_bytes() - before;
}

/// Here they are touched late.
TEST(ShellDevices, TouchesRangesBeforeOtherDevicesCopyToThem) {
  int several = 0;
  for_seeds(10, [&](std::uint64_t seed) {
    Workload workload = testing::make_strategies(seed);
    several += workload.config.device_budgets.size() > 1 ? 1 : 0;
    const Bytes least = *std::ranges::min_element(workload.config.device_budgets);
    const auto make = [](std::size_t number, Bytes budget) {
      auto device = make_cpu_device("cpu", budget);
      if (number == 0) return device;
      device->host_to_device().enqueue(
          [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
      return device;
    };
    RealRun run(make, std::move(workload), {}, nullptr, least);
    run.run_all();
    run.expect_all_done();
  });
  EXPECT_GT(several, 3);
}

TEST(ShellDevices, TouchesRangesBeforeTheirFirstUse) {
  taken_at_start(0);  // the first one's threads take memory of their own
  EXPECT_LT(taken_at_start(0), 16_MiB) << "the control";
  EXPECT_GE(taken_at_start(32_MiB), 32_MiB);
}

/// Its memory stays until nothing writes there.
TEST(ShellDevices, RemovesADeviceWhileItIsTouched) {
  constexpr Bytes kLarge = 256_MiB;
  for_seeds(3, [&](std::uint64_t seed) {
    Workload workload = make_workload(seed);
    workload.config.device_budgets.push_back(kLarge);
    const DeviceId last(workload.config.device_budgets.size() - 1);
    const auto make = RealRun::make_cpus({}, workload.config.split);
    RealRun run(make, std::move(workload), {}, nullptr, kLarge);
    run.shell.remove_device(last, "it was removed");
    run_to_the_end(run);
    ASSERT_EQ(run.heard.left.size(), 1u);
    EXPECT_EQ(run.heard.left[0].device, last);
  });
}

TEST(ShellDevices, LosesADeviceThatCannotBeWarmed) {
  RealRun run(make_workload(1));
  Device& added = run.new_device();
  run.runner.too_cold = &added;
  std::promise<void> lost;
  const std::shared_future<void> until = lost.get_future().share();
  run.heard.when_left = [&](const auto&) { lost.set_value(); };
  // Otherwise the run may end before the device is warmed.
  run.runner.before_op = [&](const OpCall&) { until.wait_for(std::chrono::seconds(10)); };
  run.shell.add_device(added, 4_KiB);
  run_to_the_end(run);
  ASSERT_EQ(run.heard.left.size(), 1u);
  EXPECT_EQ(run.heard.left[0].device, DeviceId(run.devices.size()));
  EXPECT_TRUE(run.heard.left[0].lost);
  EXPECT_EQ(run.heard.left[0].why, "too cold");
}

TEST(ShellDevices, JoinAndLeaveAtCommits) {
  std::size_t joined = 0, left = 0;
  for_seeds(30, [&](std::uint64_t seed) {
    RealRun run(make_workload(seed));
    RandomWorkload random(seed);
    std::size_t present = run.devices.size(), next = 0;
    run.heard.committed = [&](JobId, std::int64_t) {
      run.shell.add_device(run.new_device(), 4_KiB);
      ++present;
      const bool has_joined =
          next < run.workload.config.device_budgets.size() + run.heard.joined.size();
      if (present < 2 || !has_joined || random.chance(50)) return;
      run.shell.remove_device(DeviceId(next++), "asked for");
      --present;
    };
    run_to_the_end(run);
    EXPECT_TRUE(std::ranges::is_sorted(run.heard.joined));
    for (const auto& gone : run.heard.left) {
      EXPECT_FALSE(gone.lost);
      EXPECT_EQ(gone.why, "asked for");
    }
    EXPECT_EQ(total_redone(run), 0);
    joined += run.heard.joined.size();
    left += run.heard.left.size();
  });
  EXPECT_GT(joined, 10u);
  EXPECT_GT(left, 5u);
}

/// The shell has returned all memory, so the device can join again with half.
TEST(ShellDevices, RemovesAShrunkDeviceThatMayRejoin) {
  std::size_t joined = 0;
  for_seeds(20, [&](std::uint64_t seed) {
    RealRun run(shared_workload(seed), {{.fault = fault(DeviceFault::Kind::shrink, 2)}});
    run.heard.when_left = [&](const auto& gone) {
      EXPECT_EQ(gone.device, DeviceId(0));
      EXPECT_FALSE(gone.lost);
      EXPECT_EQ(gone.why, "its budget shrank to " + format_bytes(run.devices[0]->budget()));
      run.shell.add_device(*run.devices[0], 4_KiB);
    };
    run_to_the_end(run);
    EXPECT_LE(run.heard.left.size(), 1u);
    joined += run.heard.joined.size();
  });
  EXPECT_GT(joined, 5u);
}

/// One job, with plans for several numbers of lanes.
struct Resizable {
  explicit Resizable(std::uint64_t seed) {
    RandomWorkload random(seed);
    const ModelSpec model = random.model();
    const Profile profile = random.profile(model);
    JobShape shape = random.shape(1);
    shape.groups = 4;
    shape.virtual_nodes = 4 * random.between(1, 2);
    shape.max_steps = 12;
    Bytes budget = 0;
    const auto cut = [&](int lanes, Bytes bytes) {
      shape.lane_groups = split_groups(shape.groups, lanes);
      return partition(model, profile, shape, bytes, OrderChoice::automatic, true);
    };
    for (int lanes = 1; lanes <= 4; ++lanes) {
      budget = std::max(budget, cut(lanes, 0).smallest_budget);
    }
    for (int lanes = 1; lanes <= 4; ++lanes) {
      const Partition found = cut(lanes, budget);
      plans.push_back(
          std::make_shared<JobPlan>(lower(model, profile, shape, found.shards, found.vn_major)));
      home_bytes = std::max(home_bytes, plans.back()->layout.home_bytes);
    }
    workload.config = {.device_budgets = std::vector<Bytes>(4, budget),
                       .host_budget = home_bytes + plans.front()->layout.shared_bytes,
                       .policy = make_policy("lrtf")};
    workload.jobs = {plans[3]};
  }
  const std::shared_ptr<const JobPlan>& with_lanes(int lanes) const {
    return plans[static_cast<std::size_t>(lanes) - 1];
  }

  std::vector<std::shared_ptr<const JobPlan>> plans;  ///< by lanes - 1
  Bytes home_bytes = 0;
  Workload workload;
};

TEST(ShellDevices, ResizesAJobAtCommits) {
  for_seeds(15, [&](std::uint64_t seed) {
    const Resizable job(seed);
    RealRun run(job.workload);
    run.heard.committed = [&](JobId id, std::int64_t step) {
      if (step == 2) run.shell.resize(id, job.with_lanes(2));
      if (step == 5) run.shell.resize(id, job.with_lanes(1));
      if (step == 8) run.shell.resize(id, job.with_lanes(3));
    };
    run.shell.submit(JobId(0), job.with_lanes(4), job.home_bytes);
    run.shell.run();
    run.expect_all_done();
    EXPECT_EQ(run.host.in_use(), 0u);
    EXPECT_EQ(run.heard.lanes[JobId(0)], (std::vector<std::size_t>{2, 1, 3}));
  });
}

TEST(ShellDevices, ResizesAJobWhileDevicesAreLost) {
  for_seeds(15, [&](std::uint64_t seed) {
    const Resizable job(seed);
    RealRun run(job.workload, {{.fault = fault(DeviceFault::Kind::fail, 3 + seed)},
                               {.fault = fault(DeviceFault::Kind::fail, 9 + seed)}});
    run.heard.when_left = [&](const auto&) {
      run.shell.resize(JobId(0), job.with_lanes(4 - static_cast<int>(run.heard.left.size())));
    };
    run.shell.submit(JobId(0), job.with_lanes(4), job.home_bytes);
    run.shell.run();
    run.expect_all_done();
  });
}

}  // namespace
}  // namespace spillway::testing
