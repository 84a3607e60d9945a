#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/random/elastic_jobs.h"

/// Devices that join and devices that are removed.
namespace spillway {
namespace {

using testing::chain;
using testing::devices;
using testing::devices_used;
using testing::expect_done;
using testing::kAmple;
using testing::kFirst;
using testing::kSecond;
using testing::plan_of;
using testing::shape_of;
using testing::spilled;
using testing::WatchedRun;

TEST(EngineDevices, GivesWorkToANewDevice) {
  WatchedRun run(devices({kAmple}));
  for (int j = 0; j < 4; ++j) run.submit(plan_of({4}));
  run.run_into_step(JobId(0), 0);
  run.shell.add_device(kAmple);
  run.run();
  expect_done(run);
  EXPECT_GT(run.engine().device(kSecond).counters.ops, 10u);
}

TEST(EngineDevices, FinishesTracksOnARemovedDevice) {
  WatchedRun run(devices({kAmple, kAmple}));
  const JobId job = run.submit(spilled({2, 2}));
  run.run_into_step(job, 1);
  run.shell.remove_device(kSecond);
  EXPECT_TRUE(run.all<DeviceLeft>().empty());
  run.run();
  expect_done(run);
  EXPECT_EQ(devices_used(run, 1).size(), 2u);
  EXPECT_EQ(devices_used(run, 2), std::set{kFirst});
  ASSERT_EQ(run.all<DeviceLeft>().size(), 1u);
  EXPECT_FALSE(run.all<DeviceLeft>()[0].lost);
  EXPECT_TRUE(run.all<StepRedone>().empty());
}

/// Also between two units of a track: here the second one waits for the update of its weights.
TEST(EngineDevices, RemovesADeviceAfterItsTracks) {
  const ModelSpec model = chain(4);
  const JobShape shape = shape_of({1, 1});
  Profile slow = testing::profile_of(model);
  slow.update_bytes_per_s = 1e5;
  const auto shards = layers_of(spilled({1, 1})->strategy);
  ASSERT_GT(shards.size(), 1u);
  WatchedRun run(devices({kAmple, kAmple}));
  const JobId job = run.submit(std::make_shared<JobPlan>(lower(model, slow, shape, shards, false)));
  run.run_into_step(job, 1);
  run.run_until([&] {
    return run.engine().device(kFirst).running.empty() && !run.engine().device(kFirst).current;
  });
  run.shell.remove_device(kFirst);
  EXPECT_TRUE(run.all<DeviceLeft>().empty());
  run.run();
  expect_done(run);
  EXPECT_EQ(devices_used(run, 1).size(), 2u);
  EXPECT_EQ(devices_used(run, 2).size(), 1u);
}

/// Its boundaries move to the host, its next units to other devices.
TEST(EngineDevices, MovesASingleTrackAfterItsUnit) {
  const auto plan = spilled({4});
  WatchedRun run(devices({kAmple, kAmple}), {.copy_bytes_per_s = 1e8});
  const JobId job = run.submit(plan);
  run.run_into_step(job, 1);
  const DeviceId device = run.all<StartOp>().back().device;
  const std::size_t before = run.all<StartOp>().size();
  run.shell.remove_device(device);
  run.run();
  expect_done(run);
  const auto ops = run.all<StartOp>();
  std::set<int> units;
  for (std::size_t i = before; i < ops.size(); ++i) {
    if (ops[i].device == device) units.insert(ops[i].unit);
  }
  EXPECT_LE(units.size(), 2u) << "what ran and what was chosen to run next";
  EXPECT_TRUE(run.all<StepRedone>().empty());
  EXPECT_EQ(run.all<DeviceLeft>().size(), 1u);
}

TEST(EngineDevices, RemovesAnIdleDeviceAtOnce) {
  WatchedRun run(devices({kAmple, kAmple}));
  run.shell.remove_device(kSecond);
  ASSERT_EQ(run.all<DeviceLeft>().size(), 1u);
  run.shell.remove_device(kSecond);
  run.shell.lose_device(kSecond);
  EXPECT_EQ(run.all<DeviceLeft>().size(), 1u) << "it has left";
  run.submit(plan_of({4}));
  run.run();
  expect_done(run);
}

TEST(EngineDevices, SurvivesLossOfALeavingDevice) {
  WatchedRun run(devices({kAmple, kAmple}));
  const JobId job = run.submit(spilled({2, 2}));
  run.run_into_step(job, 1);
  run.shell.remove_device(kSecond);
  run.shell.lose_device(kSecond);
  run.run();
  expect_done(run);
  ASSERT_EQ(run.all<DeviceLeft>().size(), 1u);
  EXPECT_TRUE(run.all<DeviceLeft>()[0].lost);
  EXPECT_EQ(run.checker.attempts(job), 1);
}

TEST(EngineDevices, RemovesTheLastDevice) {
  WatchedRun run(devices({kAmple}));
  const JobId job = run.submit(spilled({4}));
  run.run_into_step(job, 1);
  run.shell.remove_device(kFirst);
  run.run();
  EXPECT_EQ(run.all<DeviceLeft>().size(), 1u);
  EXPECT_FALSE(run.engine().all_ended());
  run.shell.add_device(kAmple);
  run.run();
  expect_done(run);
  EXPECT_TRUE(run.all<StepRedone>().empty()) << "nothing was lost";
}

}  // namespace
}  // namespace spillway
