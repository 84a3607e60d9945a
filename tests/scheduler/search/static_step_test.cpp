#include "scheduler/search/static_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "scheduler/simulation/step_cost.h"
#include "tests/support/random/random_workload.h"

/// The static simulation of a step beside the engine's.
namespace spillway {
namespace {

using testing::RandomWorkload;

struct Case {
  std::optional<double> estimate(double most_s = std::numeric_limits<double>::infinity()) const {
    StepEstimator estimator(model, profile, shape, engine, costs);
    const auto found = estimator.estimate(plan->strategy, most_s);
    return found && found->fits ? std::optional(found->step_s) : std::nullopt;
  }

  ModelSpec model;
  Profile profile;
  JobShape shape;
  std::shared_ptr<const JobPlan> plan;
  EngineConfig engine;
  VirtualCosts costs;
};

/// Any strategy for a random model, with `percent` of the least memory that it needs.
Case make_case(std::uint64_t seed, Bytes percent) {
  RandomWorkload random(seed);
  Case made{
      .model = random.model(), .profile = {}, .shape = {}, .plan = {}, .engine = {}, .costs = {}};
  made.profile = random.profile(made.model);
  made.shape = random.shape(1);
  made.shape.max_steps = kPricedSteps;
  made.shape.eval_virtual_nodes = 0;
  const Strategy strategy = random.strategy(made.model, made.shape);
  JobPlan plan = lower(made.model, made.profile, made.shape, strategy);
  for (int t = 0; t < strategy.tracks; ++t) plan.track_devices.emplace_back(t);  // links differ
  made.plan = std::make_shared<JobPlan>(std::move(plan));
  made.engine.device_budgets.assign(at(strategy.tracks), made.plan->needed_budget * percent / 100);
  made.engine.host_budget = 1_GiB;
  made.engine.policy = make_policy("fifo");
  made.costs = {.copy_bytes_per_s = random.between(1, 100) * 1e7,
                .links = testing::random_links(seed, strategy.tracks)};
  made.costs.op_start_s.assign(at(strategy.tracks), static_cast<double>(seed % 3) * 1e-4);
  return made;
}

struct Errors {
  std::vector<double> all;  ///< relative, ascending
  int unknown = 0;          ///< cases of which the static simulation says nothing
  double mean() const { return std::accumulate(all.begin(), all.end(), 0.) / num(); }
  double num() const { return static_cast<double>(all.size()); }
};

Errors errors_at(Bytes percent, int cases) {
  Errors errors;
  for (int seed = 1; seed <= cases; ++seed) {
    SCOPED_TRACE(seed);
    const Case each = make_case(at(seed), percent);
    const auto cost = step_cost(each.plan, each.engine, each.costs);
    const auto estimate = each.estimate();
    EXPECT_TRUE(cost);
    if (cost && estimate) errors.all.push_back(std::abs(*estimate / cost->step_s - 1));
    errors.unknown += estimate ? 0 : 1;
  }
  std::ranges::sort(errors.all);
  return errors;
}

TEST(StaticStep, IsTheEnginesStepWhereAllFits) {
  const Errors errors = errors_at(10'000, 500);
  EXPECT_EQ(errors.unknown, 0);
  EXPECT_LT(errors.mean(), 0.005);
  EXPECT_LT(errors.all[errors.all.size() * 99 / 100], 0.05);
}

TEST(StaticStep, SaysNothingWhereTheEngineWouldEvict) {
  const Errors tight = errors_at(100, 300), roomier = errors_at(200, 300);
  EXPECT_GT(tight.unknown, 280);
  EXPECT_GT(roomier.unknown, 30);
  EXPECT_LT(roomier.unknown, 270);
  EXPECT_LT(roomier.mean(), 0.005);
}

/// A pass may end early, but it never says "longer" of a step that is not.
TEST(StaticStep, IsLongerThanAskedOnlyIfItIs) {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Case each = make_case(seed, 10'000);
    if (seed % 2 == 0) each.costs.contention = {2, 1.3};
    if (seed % 3 == 0) each.costs.links = {};
    if (seed % 5 < 2) each.costs.dispatch_latency_s = each.costs.copy_latency_s = 0.01;
    StepEstimator estimator(each.model, each.profile, each.shape, each.engine, each.costs);
    const double whole_s = estimator.estimate(each.plan->strategy)->step_s;
    for (const double share : {0.5, 0.9, 0.999, 1., 1.1}) {
      const auto found = estimator.estimate(each.plan->strategy, share * whole_s);
      EXPECT_EQ(found->fits, share >= 1) << share;
      EXPECT_LE(found->step_s, whole_s);
      if (share >= 1) {
        EXPECT_EQ(found->step_s, whole_s) << share;
        continue;
      }
      EXPECT_GT(found->step_s, share * whole_s);
      early += found->step_s < whole_s ? 1 : 0;
    }
  }
  EXPECT_GT(early, 100) << "the control: passes do end early";
}

/// Negative controls: with faster copies the step is shorter, and with a slow link longer.
TEST(StaticStep, DependsOnTheCosts) {
  int others = 0, slower = 0, with_links = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Case each = make_case(seed, 10'000);
    const auto before = each.estimate();
    each.costs.copy_bytes_per_s *= 4;
    others += *each.estimate() < *before ? 1 : 0;
    const int tracks = each.plan->strategy.tracks;
    if (tracks == 1) continue;
    const double fast_s = *each.estimate();
    std::vector<int> all(at(tracks));
    std::iota(all.begin(), all.end(), 0);
    each.costs.links = LinkTable({{.between = all, .bytes_per_s = 10'000}});
    slower += *each.estimate() > 2 * fast_s ? 1 : 0;
    ++with_links;
  }
  EXPECT_GT(others, 40);
  EXPECT_GT(slower, with_links / 2);
}

}  // namespace
}  // namespace spillway
