#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "scheduler/engine/trace_recorder.h"
#include "tests/support/random/elastic_jobs.h"
#include "tests/support/random/from_environment.h"

/// Lost devices, changed plans, paused jobs.
namespace spillway {
namespace {

using testing::chain;
using testing::devices;
using testing::devices_used;
using testing::expect_done;
using testing::host_ops;
using testing::kAmple;
using testing::kFirst;
using testing::kSanitized;
using testing::kSecond;
using testing::kSteps;
using testing::least_budget;
using testing::plan_job;
using testing::plan_of;
using testing::shape_of;
using testing::spilled;
using testing::WatchedRun;

TEST(EngineElastic, ResizesAtTheNextCommitPoint) {
  WatchedRun run(devices({kAmple, kAmple}));
  const auto one = plan_of({4}), two = plan_of({2, 2});
  const JobId job = run.submit(one, std::max(one->layout.home_bytes, two->layout.home_bytes));
  run.run_into_step(job, 1);
  run.shell.resize(job, two);
  EXPECT_EQ(run.job(job).plan, one);
  run.run();
  expect_done(run);
  EXPECT_EQ(devices_used(run, 1).size(), 1u);
  EXPECT_EQ(devices_used(run, 2).size(), 2u);
  EXPECT_EQ(run.all<PlanChanged>().size(), 1u);
  EXPECT_EQ(run.checker.attempts(job), 0) << "nothing is dropped";
}

TEST(EngineElastic, AppliesTheLatestResize) {
  WatchedRun run(devices({kAmple, kAmple, kAmple}));
  const auto one = plan_of({4}), two = plan_of({2, 2}), three = plan_of({2, 1, 1});
  const JobId job = run.submit(one, 2 * three->layout.home_bytes);
  run.run_into_step(job, 0);
  run.shell.resize(job, three);
  run.shell.resize(job, two);
  run.run_into_step(job, 1);
  EXPECT_EQ(run.job(job).plan, two);
  run.shell.resize(job, one);
  run.shell.resize(job, two);  // unchanged
  run.run();
  expect_done(run);
  EXPECT_EQ(run.all<PlanChanged>().size(), 1u);
}

TEST(EngineElastic, StartsAWaitingJobWithItsNewPlan) {
  const auto one = plan_of({4}), two = plan_of({2, 2});
  const Bytes home = std::max(one->layout.home_bytes, two->layout.home_bytes);
  EngineConfig config = devices({kAmple, kAmple});
  config.host_budget = home;
  WatchedRun run(config);
  run.submit(one, home);
  const JobId waiting = run.submit(one, home);
  run.shell.resize(waiting, two);
  run.run();
  expect_done(run);
  const auto ops = run.all<StartOp>([&](const StartOp& op) { return op.job == waiting; });
  EXPECT_TRUE(std::ranges::any_of(ops, [](const StartOp& op) { return op.device == kSecond; }));
}

TEST(EngineElastic, ReservesTheLargestHome) {
  const auto one = plan_of({4}), four = plan_of({1, 1, 1, 1});
  ASSERT_LT(one->layout.home_bytes, four->layout.home_bytes);
  WatchedRun run(devices({kAmple}));
  run.submit(one, four->layout.home_bytes);
  EXPECT_EQ(run.engine().host_used(), four->layout.home_bytes);
  EXPECT_EQ(run.all<AdmitJob>().at(0).home_bytes, four->layout.home_bytes);
  run.run();
  expect_done(run);
}

/// Whenever a device is lost, exactly the open step is repeated.
TEST(EngineElastic, RepeatsOnlyTheOpenStepAfterAnyLoss) {
  JobShape shape = shape_of({2, 1, 1});
  shape.eval_virtual_nodes = 3;
  shape.eval_steps = 2;
  const Bytes budget = 2 * least_budget(chain(4), shape);
  const auto three = plan_job(chain(4), shape, budget);
  shape.lane_groups = {4};
  const auto one = plan_job(chain(4), shape, budget);
  int redone = 0, lost = 0;
  constexpr int kStride = kSanitized ? 7 : 1;
  for (int events = 0; events < 400; events += kStride) {
    SCOPED_TRACE(events);
    WatchedRun run(devices({budget, budget, budget}), {.copy_bytes_per_s = 1e8, .cancel_s = 1e-4});
    run.submit(three);
    run.submit(one);
    for (int i = 0; i < events; ++i) run.advance();
    run.shell.lose_device(DeviceId(events % 3));
    run.run();
    expect_done(run);
    for (int j = 0; j < 2; ++j) EXPECT_LE(run.checker.attempts(JobId(j)), 1);
    const std::size_t blocks = one->layout.weights.size();
    EXPECT_EQ(host_ops(run, HostOpKind::update), 2 * blocks * kSteps);
    EXPECT_EQ(host_ops(run, HostOpKind::load), 2u * (kSteps + 2));
    EXPECT_EQ(host_ops(run, HostOpKind::finish_evaluation), 4u);
    redone += static_cast<int>(run.all<StepRedone>().size());
    lost += run.lost;
    if (HasFailure()) return;
  }
  EXPECT_GT(redone, 200 / kStride);
  EXPECT_GT(lost, 200 / kStride);
}

/// Three jobs of one track each go to whichever of two devices is free. All their data fits, so no
/// boundary has to go to the host.
TEST(EngineElastic, MovesBoundariesBetweenDevices) {
  WatchedRun run(devices({kAmple, kAmple}));
  for (int j = 0; j < 3; ++j) run.submit(spilled({4}));
  run.run();
  expect_done(run);
  const Layout& layout = run.job(JobId(0)).plan->layout;
  Bytes from_home = 0, to_home = 0, moved = 0;
  std::size_t moves = 0;
  for (const StartCopy& copy : run.all<StartCopy>()) {
    const BufferKind kind = layout.buffers[at(copy.buffer)].kind;
    const bool crosses = kind == BufferKind::boundary || kind == BufferKind::gradient;
    EXPECT_EQ(copy.peer.valid(), crosses);
    EXPECT_NE(copy.peer, copy.device);
    moves += crosses ? 1 : 0;
    (crosses                                    ? moved
     : copy.direction == CopyDirection::to_host ? to_home
                                                : from_home) += copy.bytes;
  }
  EXPECT_GT(moves, 0u);
  Bytes h2d = 0, d2h = 0;
  for (const DeviceCounters& counters : snapshot_of(run.engine()).devices) {
    h2d += counters.h2d_bytes;
    d2h += counters.d2h_bytes;
  }
  EXPECT_EQ(h2d, from_home + moved);
  EXPECT_EQ(d2h, to_home + moved);
}

/// The op may have read data of the lost device. Its repetition counts.
TEST(EngineElastic, IgnoresOpFailuresOfARepeatedStep) {
  for (const bool fails_again : {false, true}) {
    WatchedRun run(devices({kAmple, kAmple}), {.cancel_s = 1e-6});
    const JobId job = run.submit(plan_of({4, 4}));
    run.run_until([&] {
      return !run.engine().device(kFirst).running.empty() &&
             !run.engine().device(kSecond).running.empty();
    });
    DeviceId failing;
    const auto fail_next_op = [&, watch = run.shell.on_action](const Action& action) {
      watch(action);
      const auto* op = std::get_if<StartOp>(&action);
      if (!op || failing.valid()) return;
      failing = op->device;
      run.shell.fail_next(job, "garbage");
    };
    run.shell.on_action = fail_next_op;
    run.run_until([&] { return failing.valid(); });
    run.shell.lose_device(failing == kFirst ? kSecond : kFirst);
    run.run_until([&] { return run.checker.attempts(job) == 1; });
    if (fails_again) failing = DeviceId();
    run.run();
    EXPECT_EQ(run.job(job).end, fails_again ? JobEnd::failed : JobEnd::done);
    EXPECT_EQ(run.job(job).reason, fails_again ? "garbage" : "");
    EXPECT_EQ(run.checker.problems(), std::vector<std::string>{});
  }
}

TEST(EngineElastic, LeavesUnaffectedJobsAlone) {
  WatchedRun run(devices({kAmple, kAmple}));
  const JobId one = run.submit(plan_of({4})), other = run.submit(plan_of({4}));
  run.run_until([&] {
    return !run.engine().device(kFirst).running.empty() &&
           !run.engine().device(kSecond).running.empty();
  });
  run.shell.lose_device(kSecond);
  run.run();
  expect_done(run);
  EXPECT_EQ(run.checker.attempts(one) + run.checker.attempts(other), 1);
}

/// The short track has sent its sums to the host before its device is lost.
TEST(EngineElastic, DoesNotRepeatWorkSavedToTheHost) {
  WatchedRun run(devices({kAmple, kAmple}));
  const JobId job = run.submit(plan_of({7, 1}));
  const auto& table = run.job(job);
  run.run_until([&] {
    if (table.phase != JobPhase::running) return false;
    const auto& units = table.program->track_units[1];
    const UnitState& last = table.units[at(units.back())];
    const bool ended = last.ops_done == table.program->units[at(units.back())].num_ops;
    return ended && last.drains_left == 0;
  });
  const DeviceId device = table.tracks[1].device;
  ASSERT_NE(device, table.tracks[0].device);
  run.shell.lose_device(device);
  run.run();
  expect_done(run);
  EXPECT_TRUE(run.all<StepRedone>().empty());
}

/// Another device takes a claimed unit whose weights are loading.
TEST(EngineElastic, ReturnsAClaimedUnit) {
  WatchedRun run(devices({kAmple, kAmple}), {.copy_bytes_per_s = 1e7});
  for (int j = 0; j < 3; ++j) run.submit(plan_of({4}));
  const auto& device = run.engine().device(kFirst);
  const auto is_copied = [](const auto& item) {
    return item.second.filling != 0 || item.second.draining != 0;
  };
  run.run_until([&] {
    const auto& copies = run.engine().copies(kFirst).entries();
    return device.next && device.current && std::ranges::any_of(copies, is_copied);
  });
  const JobId runs = device.current->job, waits = device.next->job;
  ASSERT_NE(runs, waits);
  run.shell.lose_device(kFirst);
  run.run();
  expect_done(run);
  EXPECT_GT(run.lost, 0);
  EXPECT_EQ(run.checker.attempts(waits), 0);
}

TEST(EngineElastic, WaitsForADevice) {
  WatchedRun run(devices({kAmple}));
  const JobId job = run.submit(plan_of({2, 2}));
  run.run_into_step(job, 2);
  run.shell.lose_device(kFirst);
  run.run();
  EXPECT_TRUE(run.engine().idle());
  EXPECT_EQ(run.job(job).step, 2);
  EXPECT_EQ(run.shell.add_device(kAmple), kSecond) << "numbers are not used again";
  run.run();
  expect_done(run);
  EXPECT_EQ(devices_used(run, 2), (std::set{kFirst, kSecond}));
}

TEST(EngineElastic, IgnoresADeviceThatIsTooSmall) {
  const auto plan = plan_of({4});
  WatchedRun run(devices({plan->needed_budget}));
  const JobId job = run.submit(plan);
  run.run_into_step(job, 1);
  run.shell.lose_device(kFirst);
  run.shell.add_device(plan->needed_budget - 1);
  run.run();
  EXPECT_FALSE(run.engine().all_ended());
  run.shell.add_device(plan->needed_budget);
  run.run();
  expect_done(run);
}

/// A resize does not wait for an impossible commit.
TEST(EngineElastic, RescuesAJobByResizing) {
  const auto large = plan_of({4}), small = spilled({4});
  ASSERT_LT(small->needed_budget, large->needed_budget);
  WatchedRun run(devices({kAmple, small->needed_budget}));
  const JobId job = run.submit(large, std::max(large->layout.home_bytes, small->layout.home_bytes));
  run.run_into_step(job, 1);
  run.shell.lose_device(kFirst);
  run.run();
  ASSERT_TRUE(run.engine().idle());
  run.shell.resize(job, small);
  run.run();
  expect_done(run);
  EXPECT_EQ(run.job(job).plan, small);
}

TEST(EngineElastic, SharesADeviceOnlyIfDevicesAreTooFew) {
  WatchedRun run(devices({kAmple, kAmple, kAmple}));
  const JobId job = run.submit(plan_of({1, 1, 1}));
  run.run_into_step(job, 1);
  run.shell.lose_device(kFirst);
  run.run_into_step(job, 2);
  EXPECT_EQ(run.job(job).tracks_a_device, 2);
  run.shell.add_device(kAmple);
  run.run();
  expect_done(run);
  EXPECT_EQ(devices_used(run, 0).size(), 3u);
  EXPECT_EQ(devices_used(run, 2).size(), 2u);
  EXPECT_EQ(devices_used(run, 3), (std::set{DeviceId(1), DeviceId(2), DeviceId(3)}));
}

TEST(EngineElastic, GivesNoTrackToAnAvoidedDevice) {
  WatchedRun run(devices({kAmple, kAmple}));
  const auto all = plan_of({2, 2});
  JobPlan others = *all;
  others.avoided = {kSecond};
  const JobId job = run.submit(all);
  run.run_into_step(job, 1);
  run.shell.resize(job, std::make_shared<JobPlan>(others));
  run.run();
  expect_done(run);
  EXPECT_EQ(devices_used(run, 1).size(), 2u);
  EXPECT_EQ(devices_used(run, 2), std::set{kFirst});
}

TEST(EngineElastic, ReportsTheWorkOfEachDeviceAtACommit) {
  VirtualCosts costs;
  costs.slowdown = {1, 3};
  WatchedRun run(devices({kAmple, kAmple}), costs);
  run.submit(plan_of({2, 2}));
  run.run();
  for (const StepCommitted& committed : run.all<StepCommitted>()) {
    ASSERT_EQ(committed.work.size(), 2u);
    double planned_s = 0;
    for (const DeviceWork& work : committed.work) {
      const double slowdown = costs.slowdown[work.device.index()];
      EXPECT_NEAR(work.busy_s, slowdown * work.planned_s, 1e-9);
      planned_s += work.planned_s;
    }
    EXPECT_NEAR(planned_s, run.job(JobId(0)).plan->step_s, 1e-9);
  }
}

TEST(EngineElastic, FinishesTheStepBeforeAPause) {
  WatchedRun run(devices({kAmple}));
  const JobId job = run.submit(plan_of({4}));
  run.run_into_step(job, 1);
  run.shell.pause(job);
  run.run();
  EXPECT_EQ(run.job(job).step, 2);
  EXPECT_EQ(run.engine().copies(kFirst).used(), 0u);
  const JobId other = run.submit(plan_of({4}));
  run.run();
  EXPECT_EQ(run.job(other).phase, JobPhase::ended);
  run.shell.resize(job, spilled({4}));
  EXPECT_TRUE(run.engine().idle());
  run.shell.resume(job);
  run.run();
  expect_done(run);
}

TEST(EngineElastic, StopsOrResumesAJobThatIsPausing) {
  WatchedRun run(devices({kAmple}));
  const JobId stopped = run.submit(plan_of({4})), resumed = run.submit(plan_of({4}));
  run.shell.pause(stopped);
  run.shell.pause(resumed);
  run.shell.resume(resumed);
  run.run();
  EXPECT_EQ(run.job(resumed).phase, JobPhase::ended);
  EXPECT_EQ(run.job(stopped).step, 0);
  run.shell.stop(stopped);
  run.run();
  EXPECT_TRUE(run.engine().all_ended());
  EXPECT_EQ(run.job(stopped).end, JobEnd::stopped);
  EXPECT_EQ(run.engine().host_used(), 0u);
}

TEST(EngineElastic, HoldsAJobAtItsStepOffTheDevices) {
  WatchedRun run(devices({kAmple}));
  const JobId job = run.submit(plan_of({4}));
  run.shell.hold(job, {2});
  run.run();
  EXPECT_EQ(run.job(job).step, 2);
  EXPECT_EQ(run.engine().copies(kFirst).used(), 0u);
  run.shell.pause(job);
  run.shell.resume(job);  // another limit, which does not release it
  run.run();
  EXPECT_EQ(run.job(job).step, 2);
  run.shell.resize(job, spilled({4}));
  run.shell.hold(job, {kNoStep});
  run.run();
  expect_done(run);
}

TEST(EngineElastic, PausesAHeldJob) {
  WatchedRun run(devices({kAmple}));
  const JobId job = run.submit(plan_of({4}));
  run.shell.hold(job, {1});
  run.run();
  run.shell.pause(job);
  run.shell.hold(job, {2});
  run.run();
  EXPECT_EQ(run.job(job).step, 1);
  run.shell.resume(job);
  run.run();
  EXPECT_EQ(run.job(job).step, 2);
  run.shell.stop(job);
  run.run();
  EXPECT_TRUE(run.engine().all_ended());
  EXPECT_EQ(run.job(job).end, JobEnd::stopped);
  EXPECT_EQ(run.engine().host_used(), 0u);
}

/// Reports everything at once and in order, like a shell without a clock.
class Reporter {
 public:
  explicit Reporter(EngineConfig config) : engine(std::move(config)) {}

  /// Runs until nothing is in flight or `until()` holds. Passes every report through
  /// `change(done)`.
  void run(const std::function<bool()>& until, const std::function<void(Done&)>& change) {
    while (!to_report.empty() && !until()) {
      Done done{.id = *to_report.begin()};
      to_report.erase(to_report.begin());
      change(done);
      engine.on_done(done, actions);
      note();
    }
  }
  void note() {
    for (; seen_ < actions.size(); ++seen_) {
      std::visit(
          [this](const auto& action) {
            if constexpr (requires { action.id; }) to_report.insert(action.id);
          },
          actions[seen_]);
    }
  }

  Engine engine;
  std::vector<Action> actions;
  std::set<ActionId> to_report;

 private:
  std::size_t seen_ = 0;
};

/// Reports in flight from a lost device count as lost, even failures.
TEST(EngineElastic, IgnoresReportsOfALostDevice) {
  const auto plan = plan_of({2, 2});
  Reporter reporter(devices({kAmple, kAmple}));
  reporter.engine.submit(JobId(0), plan, plan->layout.home_bytes, {}, reporter.actions);
  reporter.note();
  const auto computes = [&] { return !reporter.engine.device(kSecond).running.empty(); };
  reporter.run(computes, [](Done&) {});
  ASSERT_TRUE(computes());
  const ActionId op = reporter.engine.device(kSecond).running.front();
  reporter.engine.lose_device(kSecond, reporter.actions);
  reporter.note();
  reporter.run([] { return false; },
               [&](Done& done) {
                 if (done.id == op) done.error = "the device broke";
               });
  EXPECT_TRUE(reporter.engine.all_ended());
  EXPECT_EQ(reporter.engine.job(JobId(0)).end, JobEnd::done);
  EXPECT_EQ(reporter.engine.job(JobId(0)).attempt, 1);
}

TEST(EngineElastic, OmitsLostWorkFromTraces) {
  TraceRecorder trace(10'000);
  const auto plan = plan_of({2, 2});
  VirtualShell shell(devices({kAmple, kAmple}), {});
  std::size_t done = 0;
  shell.on_action = [&](const Action& action) { trace.on_action(action); };
  shell.on_completion = [&](const Done& end) {
    trace.on_done(end);
    done += end.lost ? 0 : 1;
  };
  trace.submit(JobId(0), plan);
  shell.submit(JobId(0), plan);
  while (shell.engine().device(kSecond).running.empty()) shell.advance();
  shell.lose_device(kSecond);
  shell.run();
  EXPECT_TRUE(shell.engine().all_ended());
  EXPECT_EQ(trace.spans().size(), done - 2) << "all but the admission and the release";
}

}  // namespace
}  // namespace spillway
