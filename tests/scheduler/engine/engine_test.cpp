#include "scheduler/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/models/small_model.h"

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

TEST(Engine, SlowsOnlyCopiesOfALimitedLink) {
  const ModelSpec model = chain(6);
  const JobShape shape = shape_of(4, {1, 1});
  const Bytes budget = 2 * least_budget(model, shape);
  const auto bytes_per_s = [&](std::vector<double> links) {
    VirtualShell shell(
        {.device_budgets = {budget, budget}, .host_budget = 1_GiB, .policy = make_policy("lrtf")},
        {.copy_bytes_per_s = 1e8, .link_bytes_per_s = std::move(links), .copy_latency_s = 0});
    shell.submit(JobId(std::size_t{0}), plan_job(model, shape, budget));
    shell.run();
    std::vector<double> rates;
    for (const DeviceCounters& device : snapshot_of(shell.engine()).devices)
      rates.push_back(static_cast<double>(device.h2d_bytes + device.d2h_bytes) / device.copy_s);
    return rates;
  };
  for (const double rate : bytes_per_s({})) EXPECT_NEAR(rate, 1e8, 1);
  const auto linked = bytes_per_s({0, 1e7}), fast = bytes_per_s({1e9});
  EXPECT_NEAR(linked[0], 1e8, 1);
  EXPECT_NEAR(linked[1], 1e7, 1);
  EXPECT_NEAR(fast[0], 1e8, 1);
}

TEST(Engine, PrefetchesOnlyWithDoubleBuffer) {
  const ModelSpec model = chain(6);
  const JobShape shape = shape_of(4);
  const Bytes budget = 2 * least_budget(model, shape);
  const auto plan = plan_job(model, shape, budget);
  const Outcome with = run({plan, plan}, {budget});
  const Outcome without = run({plan, plan}, {budget}, false);
  EXPECT_GT(with.counters.devices[0].prefetches, 0u);
  EXPECT_EQ(without.counters.devices[0].prefetches, 0u);
  EXPECT_LT(with.seconds, without.seconds);
  EXPECT_LT(with.counters.devices[0].stall_s, without.counters.devices[0].stall_s);
}

TEST(Engine, PrefetchesOneBlockAtATime) {
  const ModelSpec model = chain(12);
  const JobShape shape = shape_of(4);
  const Bytes budget = 4 * least_budget(model, shape);
  const auto plan = plan_job(model, shape, budget, OrderChoice::shard_major);
  ASSERT_GT(plan->strategy.stages.size(), 1u);
  ASSERT_GT(plan->strategy.stages[1].layers.end - plan->strategy.stages[1].layers.begin, 2);
  std::set<ActionId> ops, prefetches;
  std::size_t most = 0, loads = 0;
  const auto note = [&](const Action& action) {
    if (const auto* op = std::get_if<StartOp>(&action)) ops.insert(op->id);
    const auto* copy = std::get_if<StartCopy>(&action);
    if (!copy || ops.empty()) return;
    if (plan->layout.buffers[at(copy->buffer)].kind != BufferKind::weights) return;
    prefetches.insert(copy->id);
    most = std::max(most, prefetches.size());
    ++loads;
  };
  run({plan}, {budget}, true, [&](VirtualShell& shell) {
    shell.on_action = note;
    shell.on_completion = [&](const Done& done) {
      ops.erase(done.id);
      prefetches.erase(done.id);
    };
  });
  EXPECT_EQ(most, 1u);
  EXPECT_GT(loads, 100u);
}

TEST(Engine, MovesWeightsAtMostTwiceAStep) {
  const ModelSpec model = chain(6);
  for (const Bytes percent : {100u, 130u, 200u}) {
    const Bytes budget = least_budget(model, shape_of(1)) * percent / 100 / kPage * kPage;
    std::vector<Bytes> moved;
    for (const int vns : {1, 2, 16}) {
      const auto plan = plan_job(model, shape_of(vns), budget);
      ASSERT_GT(plan->strategy.stages.size(), 1u);
      const DeviceCounters device = run({plan}, {budget}).counters.devices[0];
      // All but the last shard are loaded twice: 10 steps.
      const Bytes once = testing::weights_bytes(model, {0, 6}),
                  last = testing::weights_bytes(model, plan->strategy.stages.back().layers);
      EXPECT_EQ(device.h2d_weight_bytes, 10 * (2 * once - last));
      moved.push_back(device.h2d_weight_bytes);
    }
    EXPECT_EQ(moved[0], moved[1]);
    EXPECT_EQ(moved[0], moved[2]);
  }
}

TEST(Engine, KeepsWeightsForTheNextUnit) {
  const ModelSpec model = chain(4);
  JobShape shape = shape_of(4);
  shape.eval_virtual_nodes = 2;
  shape.eval_steps = 1;
  const auto plan = plan_job(model, shape, kAmple);
  for (const bool double_buffer : {false, true}) {
    // 10 steps, and the evaluation after the last one.
    EXPECT_EQ(run({plan}, {kAmple}, double_buffer).counters.devices[0].h2d_weight_bytes,
              11 * testing::weights_bytes(model, {0, 4}));
  }
}

TEST(Engine, SharesDevicesAmongJobsThatFit) {
  const ModelSpec model = chain(4);
  const auto plan = plan_job(model, shape_of(4), kAmple);
  const double alone = run({plan}, {kAmple}).seconds;
  const Outcome two = run({plan, plan}, {kAmple, kAmple});
  EXPECT_LT(two.seconds, 1.2 * alone);
  EXPECT_EQ(two.counters.devices[0].ops, two.counters.devices[1].ops);
  const Outcome four = run({plan, plan, plan, plan}, {kAmple, kAmple});
  EXPECT_LT(four.seconds, 2.2 * alone);
}

TEST(Engine, SharesDevicesAmongSpilledJobs) {
  const ModelSpec model = chain(6);
  const Bytes budget = 2 * least_budget(model, shape_of(4));
  const auto plan = plan_job(model, shape_of(4), budget);
  const double alone = run({plan}, {budget}).seconds;
  EXPECT_LT(run({plan, plan, plan, plan}, {budget, budget}).seconds, 2.2 * alone);
}

TEST(Engine, ShortensAStepByTracks) {
  const ModelSpec model = chain(4);
  const auto one = plan_job(model, shape_of(8, {8}), kAmple);
  const auto two = plan_job(model, shape_of(8, {4, 4}), kAmple);
  EXPECT_LT(run({two}, {kAmple, kAmple}).seconds, 0.7 * run({one}, {kAmple, kAmple}).seconds);
}

std::vector<std::uint64_t> ops_of(const JobPlan& plan, std::vector<DeviceId> track_devices,
                                  int num_jobs = 1) {
  JobPlan bound = plan;
  bound.track_devices = std::move(track_devices);
  const std::vector jobs(at(num_jobs), std::make_shared<const JobPlan>(std::move(bound)));
  std::vector<std::uint64_t> ops;
  for (const auto& device : run(jobs, {kAmple, kAmple, kAmple}).counters.devices) {
    ops.push_back(device.ops);
  }
  return ops;
}

TEST(Engine, RunsPlacedTracksOnTheirDevices) {
  using Ops = std::vector<std::uint64_t>;
  const auto two = plan_job(chain(4), shape_of(8, {5, 3}), kAmple);
  EXPECT_EQ(ops_of(*two, {DeviceId(2), DeviceId(0)}), (Ops{30, 0, 50}));
  EXPECT_EQ(ops_of(*two, {DeviceId(0), DeviceId(1)}), (Ops{50, 30, 0}));
  const auto one = plan_job(chain(4), shape_of(8, {8}), kAmple);
  EXPECT_EQ(ops_of(*one, {DeviceId(1)}), (Ops{0, 80, 0}));
  EXPECT_EQ(ops_of(*one, {DeviceId(1)}, 3), (Ops{0, 240, 0})) << "nor are they stolen";
  EXPECT_GT(ops_of(*one, {}, 3)[0], 0u) << "the control";
}

TEST(Engine, CountsNoEvictionOfWeightsThatATrackHasFinished) {
  const ModelSpec model = chain(4);
  const auto evictions = [&](Bytes budget) {
    JobPlan bound = *plan_job(model, shape_of(8, {3, 5}), budget);
    bound.track_devices = {DeviceId(1), DeviceId(0)};
    const auto counters =
        run({std::make_shared<const JobPlan>(std::move(bound))}, {budget, budget}).counters;
    return counters.devices[0].evictions + counters.devices[1].evictions;
  };
  EXPECT_EQ(evictions(kAmple), 0u);
  EXPECT_GT(evictions(least_budget(model, shape_of(8, {3, 5}))), 0u) << "the control";
}

/// Any op, copy or host op may fail, at any time.
TEST(Engine, FailsOneJobAlone) {
  const ModelSpec model = chain(4);
  const Bytes budget = 2 * least_budget(model, shape_of(4));
  JobShape shape = shape_of(4);
  shape.max_steps = 2;
  const auto plan = plan_job(model, shape, budget);
  for (int num_events = 0; num_events < 120; ++num_events) {
    SCOPED_TRACE(num_events);
    const Outcome result =
        run({plan, plan, plan}, {budget, budget}, true, [&](VirtualShell& shell) {
          for (int i = 0; i < num_events; ++i) ASSERT_TRUE(shell.advance());
          shell.fail_next(JobId(1), "broken");
        });
    ASSERT_EQ(result.ends, (std::vector<JobEnd>{JobEnd::done, JobEnd::failed, JobEnd::done}));
  }
}

TEST(Engine, StopsOneJobAlone) {
  const auto plan = plan_job(chain(4), shape_of(4), kAmple);
  const Outcome result = run({plan, plan}, {kAmple}, true, [](VirtualShell& shell) {
    for (int i = 0; i < 30; ++i) shell.advance();
    shell.stop(JobId(0));
  });
  EXPECT_EQ(result.ends, (std::vector<JobEnd>{JobEnd::stopped, JobEnd::done}));
}

TEST(Engine, StopsAllJobs) {
  const auto plan = plan_job(chain(4), shape_of(4), kAmple);
  const Outcome result = run({plan, plan, plan}, {kAmple}, true, [](VirtualShell& shell) {
    for (int i = 0; i < 30; ++i) shell.advance();
    for (int j = 0; j < 3; ++j) shell.stop(JobId(j));
    shell.run();
    for (int j = 0; j < 3; ++j) EXPECT_LT(shell.engine().job(JobId(j)).step, 10);
    EXPECT_EQ(shell.engine().host_used(), 0u);
    EXPECT_EQ(shell.engine().copies(DeviceId(0)).used(), 0u);
  });
  EXPECT_EQ(result.ends, (std::vector<JobEnd>(3, JobEnd::stopped)));
}

TEST(Engine, QueuesJobsForHostMemory) {
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

/// With two spilled jobs on one device, the other job only fills the gaps of the preferred one: the
/// time of its updates. Under round_robin they alternate step by step.
TEST(Engine, ServesJobsInTheOrderOfThePolicy) {
  const ModelSpec model = chain(6);
  JobShape longer = shape_of(4), shorter = shape_of(4);
  longer.max_steps = 20;
  const Bytes budget = 2 * least_budget(model, longer);
  /// Steps of the shorter and of the longer job when either has completed 5.
  const auto steps_under = [&](const char* policy) {
    VirtualShell shell(
        {.device_budgets = {budget}, .host_budget = 1_GiB, .policy = make_policy(policy)}, {});
    shell.submit(JobId(0), plan_job(model, longer, budget));
    shell.submit(JobId(1), plan_job(model, shorter, budget));
    const auto step = [&](int job) { return shell.engine().job(JobId(job)).step; };
    while (std::max(step(0), step(1)) < 5) EXPECT_TRUE(shell.advance());
    const auto steps = std::pair(step(1), step(0));
    shell.run();
    EXPECT_TRUE(shell.engine().all_ended());
    return steps;
  };
  EXPECT_LE(steps_under("lrtf").first, 2);
  EXPECT_LE(steps_under("fifo").first, 2) << "the longer one was submitted first";
  EXPECT_LE(steps_under("srtf").second, 2);
  EXPECT_GE(steps_under("round_robin").first, 4);
  EXPECT_GE(steps_under("round_robin").second, 4);
}

/// Gives every job the same rank.
class Indifferent final : public Policy {
 public:
  std::string_view name() const override { return "indifferent"; }
  double priority(const Candidate&) const override { return 0; }
};

/// The batch of job 0 arrives late. Job 1 continues on the device of its boundaries, then the lower
/// job runs.
TEST(Engine, BreaksTiesByResidentBytesThenJob) {
  const ModelSpec model = chain(6);
  const JobShape shape = shape_of(4);
  const auto plan = plan_job(model, shape, 2 * least_budget(model, shape));
  Profile late = testing::profile_of(model);
  late.load_s = 2e-3;
  const auto late_plan = std::make_shared<JobPlan>(lower(model, late, shape, plan->strategy));
  VirtualShell shell({.device_budgets = {kAmple},
                      .host_budget = 1_GiB,
                      .policy = std::make_shared<Indifferent>(),
                      .double_buffer = false},
                     {});
  std::vector<JobId> served;  // by unit of the first step
  shell.on_action = [&](const Action& action) {
    const auto* op = std::get_if<StartOp>(&action);
    if (op && op->step == 0 && op->op % 4 == 0) served.push_back(op->job);
  };
  for (int j = 0; j < 3; ++j) shell.submit(JobId(j), j == 0 ? late_plan : plan);
  shell.run();
  const std::size_t units = plan->programs[plan->step_kind(0).index()]->units.size();
  ASSERT_GT(units, 1u);
  ASSERT_EQ(served.size(), 3 * units);
  for (std::size_t u = 0; u < units; ++u) {
    EXPECT_EQ(served[u], JobId(1));
    EXPECT_EQ(served[units + u], JobId(0));
  }
}

/// Another policy, which records the jobs that it is asked about.
class Spy final : public Policy {
 public:
  Spy(const char* policy, std::vector<Candidate>& seen)
      : policy_(make_policy(policy)), seen_(seen) {}
  std::string_view name() const override { return "spy"; }
  double priority(const Candidate& candidate) const override {
    seen_.push_back(candidate);
    return policy_->priority(candidate);
  }

 private:
  std::shared_ptr<const Policy> policy_;
  std::vector<Candidate>& seen_;
};

TEST(Engine, PassesStepAndLastServiceToPolicies) {
  const ModelSpec model = chain(6);
  const Bytes budget = 2 * least_budget(model, shape_of(4));
  const auto plan = plan_job(model, shape_of(4), budget);
  std::vector<Candidate> seen;
  VirtualShell shell({.device_budgets = {budget},
                      .host_budget = 1_GiB,
                      .policy = std::make_shared<Spy>("round_robin", seen)},
                     {});
  for (int j = 0; j < 3; ++j) shell.submit(JobId(j), plan);
  shell.run();
  std::map<JobId, std::set<std::int64_t>> steps;
  std::map<std::uint64_t, JobId> served;
  std::map<JobId, std::uint64_t> last;
  for (const Candidate& candidate : seen) {
    steps[candidate.job].insert(candidate.step);
    EXPECT_GE(candidate.last_served, last[candidate.job]) << "services are numbered upwards";
    last[candidate.job] = candidate.last_served;
    if (candidate.last_served == 0) continue;
    EXPECT_EQ(served.emplace(candidate.last_served, candidate.job).first->second, candidate.job);
  }
  for (int j = 0; j < 3; ++j) {
    EXPECT_EQ(steps[JobId(j)].size(), 10u);
    // Every unit is a service, and a policy is asked whenever two jobs could be served.
    const auto units = static_cast<int>(plan->programs[plan->step_kind(1).index()]->units.size());
    EXPECT_GT(std::ranges::count(served | std::views::values, JobId(j)), 9 * units);
  }
}

/// The number of priorities computed in a run of `num_jobs` one-step jobs, divided by their units.
double priorities_a_unit(int num_jobs, int num_devices) {
  const ModelSpec model = chain(6);
  JobShape shape = shape_of(2);
  shape.max_steps = 1;
  const Bytes budget = 2 * least_budget(model, shape);
  const auto plan = plan_job(model, shape, budget);
  std::vector<Candidate> seen;
  VirtualShell shell({.device_budgets = std::vector<Bytes>(at(num_devices), budget),
                      .host_budget = 64_GiB,
                      .policy = std::make_shared<Spy>("lrtf", seen)},
                     {});
  for (int j = 0; j < num_jobs; ++j) shell.submit(JobId(j), plan);
  shell.run();
  const auto num_units = plan->programs[plan->step_kind(0).index()]->units.size();
  return static_cast<double>(seen.size()) / static_cast<double>(num_units) / num_jobs;
}

/// Each waiting unit is ranked once, not at every choice.
TEST(Engine, ChoosesInTimeIndependentOfJobsAndDevices) {
  EXPECT_LT(priorities_a_unit(2, 1), 2.5);
  EXPECT_LT(priorities_a_unit(200, 1), 2.5);
  EXPECT_LT(priorities_a_unit(20, 100), 2.5);
  EXPECT_LT(priorities_a_unit(200, 100), 2.5);
}

/// What-if plans: a copy of the engine runs independently.
TEST(Engine, CopiesIndependently) {
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
