#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/models/small_model.h"
#include "tests/support/run/watched_run.h"

/// Small jobs for tests in which devices join and leave, plans change and jobs pause.
namespace spillway::testing {

inline constexpr Bytes kAmple = 64_MiB;
inline constexpr std::int64_t kSteps = 4;
inline const DeviceId kFirst(0), kSecond(1);

inline JobShape shape_of(std::vector<int> lane_groups, int vns_per_group = 1) {
  JobShape shape{.max_steps = kSteps};
  shape.lane_groups = std::move(lane_groups);
  shape.groups = 0;
  for (int size : shape.lane_groups) shape.groups += size;
  shape.virtual_nodes = shape.groups * vns_per_group;
  return shape;
}

inline std::shared_ptr<const JobPlan> plan_of(std::vector<int> lane_groups, Bytes budget = kAmple) {
  return plan_job(chain(4), shape_of(std::move(lane_groups)), budget);
}

/// Cut into several shards.
inline std::shared_ptr<const JobPlan> spilled(std::vector<int> lane_groups) {
  const JobShape shape = shape_of(lane_groups);
  return plan_of(std::move(lane_groups), 2 * least_budget(chain(4), shape));
}

inline EngineConfig devices(std::vector<Bytes> budgets) {
  return {
      .device_budgets = std::move(budgets), .host_budget = 1_GiB, .policy = make_policy("fifo")};
}

inline void expect_done(const WatchedRun& run) {
  EXPECT_EQ(run.checker.problems(), std::vector<std::string>{});
  EXPECT_TRUE(run.engine().all_ended());
  for (const JobEnded& end : run.all<JobEnded>()) {
    EXPECT_EQ(end.end, JobEnd::done);
    EXPECT_EQ(run.checker.steps(end.job), kSteps);
  }
  EXPECT_EQ(run.engine().host_used(), 0u);
}

inline std::set<DeviceId> devices_used(const WatchedRun& run, std::int64_t step) {
  std::set<DeviceId> used;
  for (const StartOp& op : run.all<StartOp>([&](const StartOp& o) { return o.step == step; })) {
    used.insert(op.device);
  }
  return used;
}

inline std::size_t host_ops(const WatchedRun& run, HostOpKind kind) {
  return run
      .all<StartHostOp>([&](const StartHostOp& start) {
        const JobPlan& plan = *run.job(start.job).plan;
        return plan.programs[start.step_kind]->host_ops[at(start.op)].kind == kind;
      })
      .size();
}

}  // namespace spillway::testing
