#include "scheduler/simulation/controlled_shell.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/check/action_checker.h"
#include "tests/support/models/small_model.h"
#include "tests/support/random/from_environment.h"

/// Jobs on the virtual clock with the lanes that a controller gives them.
namespace spillway {
namespace {

using testing::ActionChecker;
using testing::campaign_size;
using testing::chain;

constexpr int kJobGroups = 8;
constexpr std::int64_t kSteps = 60;

/// Each virtual node takes 3 ms; `load_s` is the part of a step that lanes do not share.
std::shared_ptr<const JobPlan> plan_of(int lanes, const std::vector<DeviceId>& avoid = {},
                                       double load_s = 0) {
  const ModelSpec model = chain(1);
  Profile profile = testing::profile_of(model);
  profile.load_s = load_s;
  const JobShape shape{.virtual_nodes = kJobGroups,
                       .groups = kJobGroups,
                       .lane_groups = split_groups(kJobGroups, lanes),
                       .max_steps = kSteps};
  JobPlan plan = lower(model, profile, shape, {{0, 1}}, /*vn_major=*/false);
  plan.avoided = avoid;
  return std::make_shared<JobPlan>(std::move(plan));
}

/// Jobs, their actions checked.
class ControlledRun {
 public:
  ControlledRun(const char* allocator, int num_devices, VirtualCosts costs = {}, int homes = 100,
                std::optional<EarlyStopping> rule = {})
      : shell_({.device_budgets = std::vector<Bytes>(at(num_devices), 1_GiB),
                .host_budget = static_cast<Bytes>(homes) * plan_of(kJobGroups)->layout.home_bytes,
                .policy = make_policy("lrtf")},
               std::move(costs),
               RunController({make_allocator(allocator), num_devices}, std::move(rule)),
               [this](JobId, int lanes, const std::vector<DeviceId>& avoid) {
                 return plan_of(lanes, avoid, load_s);
               }) {
    shell_.on_action = [this](const Action& action) {
      checker_.on_action(action);
      if (const auto* changed = std::get_if<PlanChanged>(&action)) {
        path[changed->job.value].push_back(changed->plan->strategy.tracks);
      } else if (const auto* op = std::get_if<StartOp>(&action)) {
        ++ops[op->device.value];
        last_op_s[op->device.value] = shell_.shell().now_s();
      }
    };
    shell_.shell().on_completion = [this](const Done& done) { checker_.on_completion(done); };
    shell_.on_command = [this](const RunCommand& command) {
      if (const auto* resize = std::get_if<ResizeJob>(&command)) reasons.push_back(resize->reason);
      paused += std::holds_alternative<PauseJob>(command) ? 1 : 0;
    };
  }

  void submit(LaneDemand demand) {
    demand.job = JobId(num_jobs_++);
    demand.sizes = useful_lanes(kJobGroups, kJobGroups);
    demand.max_steps = kSteps;
    const auto plan = plan_of(demand.lanes, {}, load_s);
    checker_.submit(demand.job, plan);
    shell_.submit(demand, plan, plan_of(kJobGroups)->layout.home_bytes);
  }

  double play() {
    finish();
    for (std::size_t j = 0; j < num_jobs_; ++j) {
      EXPECT_EQ(engine().job(JobId(j)).end, JobEnd::done);
      EXPECT_EQ(checker_.steps(JobId(j)), kSteps);
    }
    return shell_.shell().now_s();
  }
  void finish() {
    shell_.run();
    EXPECT_TRUE(engine().all_ended());
    EXPECT_EQ(checker_.problems(), std::vector<std::string>{});
  }
  std::vector<std::int64_t> steps() {
    std::vector<std::int64_t> all;
    for (std::size_t j = 0; j < num_jobs_; ++j) all.push_back(engine().job(JobId(j)).step);
    return all;
  }
  void add_device() { shell_.add_device(1_GiB); }
  /// Jobs that run are resized so long after the decision.
  void delay_resizes(double delay_s) {
    shell_.resize_delay_s = [this, delay_s](const ResizeJob& resize) {
      return path.contains(resize.job.value) ? delay_s : 0;
    };
  }
  VirtualShell& shell() { return shell_.shell(); }
  const Engine& engine() { return shell().engine(); }

  std::map<std::uint32_t, std::vector<int>> path;  ///< lanes of each job
  std::map<std::uint32_t, int> ops;                ///< by device
  std::map<std::uint32_t, double> last_op_s;
  std::vector<std::string> reasons;
  int paused = 0;
  double load_s = 0;  ///< of the jobs submitted from now on

 private:
  ControlledShell shell_;
  ActionChecker checker_;
  std::size_t num_jobs_ = 0;
};

LaneDemand asks(int lanes, int priority = 1) {
  return {.lanes = lanes, .most_lanes = lanes, .priority = priority};
}

TEST(ControlledShell, SharesByPriorityUnderWfsAndGivesBack) {
  ControlledRun run("wfs", 3);
  run.submit(asks(2, 1));
  run.submit(asks(2, 3));
  run.play();
  EXPECT_EQ(run.path.at(1), (std::vector{2}));
  EXPECT_EQ(run.path.at(0), (std::vector{1, 2})) << "when the other one has ended";
}

TEST(ControlledShell, CarriesOutADelayedResizeWhileTheJobRuns) {
  for (const bool in_time : {true, false}) {
    ControlledRun run("wfs", 3);
    run.delay_resizes(in_time ? 1e-3 : 1e3);
    run.submit(asks(2, 1));
    run.submit(asks(2, 3));
    run.play();
    EXPECT_EQ(run.path.at(0), in_time ? (std::vector{1, 2}) : std::vector{1});
  }
}

TEST(ControlledShell, LetsNobodyWaitUnderFill) {
  ControlledRun run("fill", 2);
  for (int j = 0; j < 3; ++j) run.submit(asks(2));
  run.play();
  EXPECT_EQ(run.paused, 0);
  for (std::uint32_t j = 0; j < 3; ++j) EXPECT_EQ(run.path.at(j).front(), 1);
  EXPECT_EQ(run.ops.size(), 2u);
  ControlledRun alone("fill", 2);
  alone.submit(asks(2));
  alone.play();
  EXPECT_EQ(alone.path.at(0), (std::vector{2}));
}

/// Those that wait at a rung leave their share to those that they wait for.
TEST(ControlledShell, EndsTheSameJobsEarlyHoweverDevicesAreShared) {
  for (const char* allocator : {"none", "priority", "wfs", "fill"}) {
    for (const int num_devices : {1, 2, 4}) {
      EarlyStopping rule({.rungs = {5, 2}});
      for (int j = 0; j < 5; ++j) rule.enter(JobId(j), 0, kSteps);
      ControlledRun run(allocator, num_devices, {}, 100, rule);
      const int lanes = allocator == std::string("none") ? 1 : 2;
      for (int j = 0; j < 5; ++j) run.submit(asks(std::min(lanes, num_devices), 5 - j));
      run.finish();
      EXPECT_EQ(run.steps(), (std::vector<std::int64_t>{kSteps, 10, 5, 5, 5})) << allocator;
      EXPECT_EQ(run.engine().host_used(), 0u);
    }
  }
}

/// Trials that have still to begin need no host memory.
TEST(ControlledShell, NeedsFewHomesForJobsThatBeginOneAfterTheOther) {
  for (const char* allocator : {"none", "priority", "wfs", "fill"}) {
    for (const auto kind : {EarlyTerminateKind::asha, EarlyTerminateKind::median}) {
      EarlyStopping rule({.kind = kind, .rungs = {5, 2}, .most_at_once = 2});
      for (int j = 0; j < 5; ++j) rule.enter(JobId(j), 0, kSteps);
      ControlledRun run(allocator, 2, {}, /*homes=*/2, rule);
      for (int j = 0; j < 5; ++j) run.submit(asks(1, 5 - j));
      run.finish();
      const std::int64_t end = kind == EarlyTerminateKind::asha ? 5 : kSteps;
      EXPECT_EQ(run.steps(), (std::vector<std::int64_t>{kSteps, end, end, end, end})) << allocator;
    }
  }
}

TEST(ControlledShell, MakesOthersWaitUnderPriority) {
  ControlledRun run("priority", 2);
  run.submit(asks(2, 1));
  run.submit(asks(2, 2));
  run.play();
  EXPECT_EQ(run.path.at(0), (std::vector{2}));
  EXPECT_EQ(run.reasons, (std::vector<std::string>{"priority", "priority"}));
}

TEST(ControlledShell, PausesJobsWhileDevicesAreLost) {
  ControlledRun run("wfs", 2);
  run.submit(asks(2, 1));
  run.submit(asks(2, 2));
  run.shell().call_at(0.05, [](VirtualShell& shell) { shell.lose_device(DeviceId(1)); });
  run.play();
  EXPECT_EQ(run.paused, 1);
  EXPECT_EQ(run.path.at(0), (std::vector{1, 1}));
}

TEST(ControlledShell, DecidesNothingWithoutDevices) {
  ControlledRun run("wfs", 1);
  run.submit(asks(1));
  run.shell().call_at(0.02, [](VirtualShell& shell) { shell.lose_device(DeviceId(0)); });
  run.shell().call_at(0.5, [&](VirtualShell&) { run.add_device(); });
  run.play();
  EXPECT_EQ(run.paused, 0);
}

TEST(ControlledShell, AddsLanesByARule) {
  ControlledRun run("none", 4);
  LaneDemand job{.lanes = 1, .most_lanes = 4, .rules = {make_heuristic(RuleKind::throughput)}};
  run.submit(job);
  const double walked_s = run.play();
  EXPECT_EQ(run.path.at(0), (std::vector{2, 3, 4}));
  EXPECT_EQ(run.reasons.front(), "throughput: tries 2 devices");
  ControlledRun one("none", 4);
  one.submit({.lanes = 1, .most_lanes = 1, .fixed = true});
  EXPECT_LT(walked_s, one.play());
}

TEST(ControlledShell, ShrinksWhereLanesSaveLittle) {
  for (const int first : {1, 8}) {
    ControlledRun run("none", 8);
    run.load_s = 0.02;
    run.submit({.lanes = first, .most_lanes = 8, .rules = {make_heuristic(RuleKind::throughput)}});
    run.play();
    EXPECT_EQ(run.path.at(0).back(), 4) << "from " << first;
    EXPECT_TRUE(first == 8 || std::ranges::count(run.path.at(0), 8) == 1) << "it tried";
  }
}

/// It computes until it was seen to be slow.
TEST(ControlledShell, GivesAStragglerNoLane) {
  ControlledRun run("none", 3, {.slowdown = {1, 1, 4}});
  run.submit({.lanes = 3, .most_lanes = 3, .rules = {make_heuristic(RuleKind::straggler)}});
  const double seconds = run.play();
  ASSERT_FALSE(run.reasons.empty());
  EXPECT_EQ(run.reasons.front(), "straggler: avoids device 2");
  EXPECT_GT(run.ops[2], 0);
  EXPECT_LT(run.last_op_s[2], seconds / 4);
}

/// As where the devices that are left have no room for more lanes.
TEST(ControlledShell, KeepsTheLanesOfAJobWithoutAPlanForTheDecision) {
  int refused = 0;
  ControlledShell run(
      {.device_budgets = {1_GiB, 1_GiB}, .host_budget = 1_GiB, .policy = make_policy("lrtf")}, {},
      RunController({nullptr, 2}), [&](JobId, int, const std::vector<DeviceId>&) {
        ++refused;
        return std::shared_ptr<const JobPlan>();
      });
  const auto plan = plan_of(1);
  run.submit({.job = JobId(0),
              .lanes = 1,
              .most_lanes = 2,
              .sizes = useful_lanes(kJobGroups, kJobGroups),
              .max_steps = kSteps,
              .rules = {make_heuristic(RuleKind::throughput)}},
             plan, plan->layout.home_bytes);
  run.run();
  EXPECT_GT(refused, 0);
  EXPECT_EQ(run.shell().engine().job(JobId(0)).step, kSteps);
  EXPECT_EQ(run.shell().engine().job(JobId(0)).end, JobEnd::done);
}

/// Jobs that come with and without rules, also for lanes of their own, more than there are homes
/// for; devices that come and go. Draws from its seed alone.
void play_at_random(unsigned seed) {
  std::mt19937 random(seed);
  const auto from = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  constexpr std::array kSharing{"none", "priority", "wfs", "fill"};
  constexpr std::array kRules{RuleKind::throughput, RuleKind::linear, RuleKind::stepped,
                              RuleKind::straggler};
  const int num_devices = from(1, 5);
  VirtualCosts costs;
  for (int d = 0; d < num_devices; ++d) costs.slowdown.push_back(from(1, 3));
  ControlledRun run(kSharing.at(at(from(0, 3))), num_devices, costs, from(1, 4));
  for (int j = from(1, 6); j > 0; --j) {
    LaneDemand job{.most_lanes = from(1, num_devices), .priority = from(1, 9)};
    job.lanes = from(1, job.most_lanes);
    job.fixed = from(0, 4) == 0;
    for (const RuleKind rule : kRules) {
      if (from(0, 3) == 0) job.rules.push_back(make_heuristic(rule));
    }
    run.submit(job);
  }
  for (int i = from(0, 6); i > 0; --i) {
    run.shell().call_at(from(0, 2000) * 1e-3, [&run, which = from(0, 9)](VirtualShell& shell) {
      if (which < 5) shell.lose_device(DeviceId(at(which) % shell.engine().num_devices()));
      if (which > 6) run.add_device();
    });
  }
  run.shell().call_at(10, [&](VirtualShell&) { run.add_device(); });
  run.play();
}

TEST(ControlledShell, EndsEveryJobWhateverHappens) {
  for (unsigned seed = 1; seed <= campaign_size(100, 20); ++seed) {
    SCOPED_TRACE(seed);
    play_at_random(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace spillway
