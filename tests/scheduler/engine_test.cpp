#include "scheduler/engine.h"

#include <gtest/gtest.h>

#include <memory>

#include "scheduler/virtual_shell.h"
#include "tests/support/small_model.h"

namespace spillway {
namespace {

using testing::chain;
using testing::least_budget;
using testing::plan_job;

constexpr Bytes kAmple = 64_MiB;

struct Outcome {
  EngineSnapshot counters;
  double seconds = 0;
  std::vector<JobEnd> ends;
};

Outcome run(
    const std::vector<std::shared_ptr<const JobPlan>>& jobs, std::vector<Bytes> budgets,
    bool double_buffer = true,
    const std::function<void(VirtualShell&)>& before = [](VirtualShell&) {}) {
  VirtualShell shell({.device_budgets = std::move(budgets),
                      .host_budget = 1_GiB,
                      .policy = make_policy("lrtf"),
                      .double_buffer = double_buffer},
                     {.copy_bytes_per_s = 1e8});
  for (std::size_t j = 0; j < jobs.size(); ++j) shell.submit(JobId(j), jobs[j]);
  before(shell);
  while (shell.advance()) shell.engine().check_integrity();
  EXPECT_TRUE(shell.engine().all_ended());
  Outcome result{snapshot_of(shell.engine()), shell.now_s(), {}};
  for (std::size_t j = 0; j < jobs.size(); ++j)
    result.ends.push_back(shell.engine().job(JobId(j)).end);
  return result;
}

JobShape shape_of(int virtual_nodes, std::vector<int> lane_groups = {1}) {
  JobShape shape{.virtual_nodes = virtual_nodes, .max_steps = 10};
  shape.lane_groups = std::move(lane_groups);
  shape.groups = 0;
  for (int size : shape.lane_groups) shape.groups += size;
  return shape;
}

TEST(Engine, PrefetchesOnlyWithDoubleBuffer) {
  const ModelSpec model = chain(6);
  const JobShape shape = shape_of(4);
  const Bytes budget = 2 * least_budget(model, shape);
  const Outcome with = run({plan_job(model, shape, budget)}, {budget});
  const Outcome without = run({plan_job(model, shape, budget)}, {budget}, false);
  EXPECT_GT(with.counters.devices[0].prefetches, 0u);
  EXPECT_EQ(without.counters.devices[0].prefetches, 0u);
  EXPECT_LT(with.seconds, without.seconds);
  EXPECT_LT(with.counters.devices[0].stall_s, without.counters.devices[0].stall_s);
}

TEST(Engine, WeightsMoveAtMostTwiceAStepWhateverTheVirtualNodes) {
  const ModelSpec model = chain(6);
  for (const Bytes percent : {100u, 130u, 200u}) {
    const Bytes budget = least_budget(model, shape_of(1)) * percent / 100 / kPage * kPage;
    std::vector<Bytes> moved;
    for (const int vns : {1, 2, 16}) {
      const auto plan = plan_job(model, shape_of(vns), budget);
      ASSERT_GT(plan->shards.size(), 1u);
      const auto& device = run({plan}, {budget}).counters.devices[0];
      // All but the last shard pass twice: 10 steps.
      const Bytes once = weights_bytes(model, {0, 6}),
                  last = weights_bytes(model, plan->shards.back());
      EXPECT_EQ(device.h2d_weight_bytes, 10 * (2 * once - last));
      moved.push_back(device.h2d_weight_bytes);
    }
    EXPECT_EQ(moved[0], moved[1]);
    EXPECT_EQ(moved[0], moved[2]);
  }
}

TEST(Engine, JobsThatFitShareDevicesFromTheStart) {
  const ModelSpec model = chain(4);
  const auto plan = plan_job(model, shape_of(4), kAmple);
  const double alone = run({plan}, {kAmple}).seconds;
  const Outcome two = run({plan, plan}, {kAmple, kAmple});
  EXPECT_LT(two.seconds, 1.2 * alone);
  EXPECT_EQ(two.counters.devices[0].ops, two.counters.devices[1].ops);
  const Outcome four = run({plan, plan, plan, plan}, {kAmple, kAmple});
  EXPECT_LT(four.seconds, 2.2 * alone);
}

TEST(Engine, SpilledJobsShareDevices) {
  const ModelSpec model = chain(6);
  const Bytes budget = 2 * least_budget(model, shape_of(4));
  const auto plan = plan_job(model, shape_of(4), budget);
  const double alone = run({plan}, {budget}).seconds;
  EXPECT_LT(run({plan, plan, plan, plan}, {budget, budget}).seconds, 2.2 * alone);
}

TEST(Engine, LanesShortenAStep) {
  const ModelSpec model = chain(4);
  const auto one = plan_job(model, shape_of(8, {8}), kAmple);
  const auto two = plan_job(model, shape_of(8, {4, 4}), kAmple);
  EXPECT_LT(run({two}, {kAmple, kAmple}).seconds, 0.7 * run({one}, {kAmple, kAmple}).seconds);
}

TEST(Engine, AFailingJobEndsAlone) {
  const auto plan = plan_job(chain(4), shape_of(4), kAmple);
  const Outcome result = run({plan, plan, plan}, {kAmple}, true,
                             [](VirtualShell& shell) { shell.fail_next(JobId(1), "broken"); });
  EXPECT_EQ(result.ends, (std::vector<JobEnd>{JobEnd::done, JobEnd::failed, JobEnd::done}));
}

TEST(Engine, AStoppedJobEndsAndTheOthersGoOn) {
  const auto plan = plan_job(chain(4), shape_of(4), kAmple);
  const Outcome result = run({plan, plan}, {kAmple}, true, [](VirtualShell& shell) {
    for (int i = 0; i < 30; ++i) shell.advance();
    shell.stop(JobId(0));
  });
  EXPECT_EQ(result.ends, (std::vector<JobEnd>{JobEnd::stopped, JobEnd::done}));
}

TEST(Engine, JobsWaitForHostMemory) {
  const auto plan = plan_job(chain(4), shape_of(4), kAmple);
  VirtualShell shell({.device_budgets = {kAmple},
                      .host_budget = plan->layout.home_bytes + 1,
                      .policy = make_policy("fifo")},
                     {});
  shell.submit(JobId(0), plan);
  shell.submit(JobId(1), plan);
  EXPECT_EQ(shell.engine().job(JobId(1)).phase, JobPhase::waiting);
  shell.run();
  EXPECT_TRUE(shell.engine().all_ended());
  EXPECT_EQ(shell.engine().host_peak(), plan->layout.home_bytes);
}

/// Of two spilled jobs on one device, the shorter one only fills what the longer one leaves: the
/// time of its updates.
TEST(Engine, LrtfServesTheLongerJobFirst) {
  const ModelSpec model = chain(6);
  JobShape longer = shape_of(4), shorter = shape_of(4);
  longer.max_steps = 20;
  const Bytes budget = 2 * least_budget(model, longer);
  for (const char* policy : {"lrtf", "fifo"}) {
    VirtualShell shell(
        {.device_budgets = {budget}, .host_budget = 1_GiB, .policy = make_policy(policy)}, {});
    shell.submit(JobId(0), plan_job(model, shorter, budget));
    shell.submit(JobId(1), plan_job(model, longer, budget));
    while (shell.engine().job(JobId(1)).step < 5) ASSERT_TRUE(shell.advance());
    const auto shorter_steps = shell.engine().job(JobId(0)).step;
    if (policy == std::string("lrtf")) {
      EXPECT_LE(shorter_steps, 2);
    } else {
      EXPECT_EQ(shorter_steps, 10);
    }
    shell.run();
    EXPECT_TRUE(shell.engine().all_ended());
  }
}

/// What-if plans: a copy goes its own way.
TEST(Engine, CopiesAreIndependent) {
  const auto plan = plan_job(chain(4), shape_of(4), kAmple);
  VirtualShell shell(
      {.device_budgets = {kAmple}, .host_budget = 1_GiB, .policy = make_policy("lrtf")}, {});
  shell.submit(JobId(0), plan);
  for (int i = 0; i < 20; ++i) shell.advance();
  VirtualShell copy = shell;
  copy.run();
  EXPECT_TRUE(copy.engine().all_ended());
  EXPECT_FALSE(shell.engine().all_ended());
  shell.run();
  EXPECT_EQ(shell.now_s(), copy.now_s());
}

}  // namespace
}  // namespace spillway
