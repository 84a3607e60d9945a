#include "scheduler/simulation/shortened_run.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/models/small_model.h"

namespace spillway {
namespace {

using testing::chain;
using testing::plan_job;

constexpr double kWhole = std::numeric_limits<double>::infinity();

enum class Memory { ample, small };

/// Equal jobs on two devices; on small devices they spill.
class Sweep {
 public:
  Sweep(std::size_t num_jobs, Memory memory, std::int64_t max_steps, std::int64_t eval_steps = 0) {
    const bool spills = memory == Memory::small;
    const ModelSpec model = chain(3);
    const JobShape shape{.virtual_nodes = spills ? 2 : 1,
                         .eval_virtual_nodes = spills ? 4 : 2,
                         .max_steps = max_steps,
                         .eval_steps = eval_steps};
    budget_ = spills ? testing::least_budget(model, shape) : 1_MiB;
    jobs_.assign(num_jobs, plan_job(model, shape, budget_));
  }

  RunTotals simulate(double most_ops, std::int64_t first_rung = 0) const {
    return simulate_shortened(jobs_, first_rung, most_ops,
                              [&](const RunLength& length) { return run(length); });
  }

 private:
  RunTotals run(const RunLength& length) const {
    VirtualShell shell({.device_budgets = {budget_, budget_},
                        .host_budget = jobs_.size() * jobs_[0]->layout.home_bytes,
                        .policy = make_policy("lrtf")},
                       {.copy_bytes_per_s = 1e8});
    for (std::size_t j = 0; j < jobs_.size(); ++j) shell.submit(JobId(j), length.shorten(jobs_[j]));
    shell.run();
    RunTotals totals{.counters = snapshot_of(shell.engine()), .wall_s = shell.now_s()};
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      totals.steps.push_back(shell.engine().job(JobId(j)).step);
    }
    return totals;
  }

  Bytes budget_ = 0;
  std::vector<std::shared_ptr<const JobPlan>> jobs_;
};

double ms_a_step(const RunTotals& totals) {
  double steps = 0;
  for (const std::int64_t of_job : totals.steps) steps += static_cast<double>(of_job);
  return 1e3 * totals.wall_s / steps;
}

void expect_near(double value, double expected, double tolerance) {
  EXPECT_NEAR(value, expected, tolerance * expected);
}

void expect_alike(const RunTotals& shortened, const RunTotals& whole, double tolerance) {
  EXPECT_EQ(shortened.steps, whole.steps);
  expect_near(shortened.wall_s, whole.wall_s, tolerance);
  EXPECT_EQ(shortened.counters.host_peak, whole.counters.host_peak);
  const auto expect_sums_near = [&](auto member) {
    double value = 0, expected = 0;
    for (const auto& device : shortened.counters.devices) {
      value += static_cast<double>(device.*member);
    }
    for (const auto& device : whole.counters.devices) {
      expected += static_cast<double>(device.*member);
    }
    expect_near(value, expected, tolerance);
  };
  expect_sums_near(&DeviceCounters::busy_s);
  expect_sums_near(&DeviceCounters::copy_s);
  expect_sums_near(&DeviceCounters::h2d_bytes);
  expect_sums_near(&DeviceCounters::d2h_bytes);
  expect_sums_near(&DeviceCounters::ops);
}

TEST(ShortenedRun, PredictsStepsForSweepsOfAnySize) {
  // From a certain number of jobs on, the devices are always busy.
  const double of_many = ms_a_step(Sweep(40, Memory::ample, 50).simulate(kWhole));
  for (const std::size_t num_jobs : {1u, 4u, 2000u, 8000u}) {
    SCOPED_TRACE(num_jobs);
    const bool are_few = num_jobs < 40;
    const std::int64_t max_steps = are_few ? 2000 : 50;
    const Sweep sweep(num_jobs, Memory::ample, max_steps);
    const RunTotals totals = sweep.simulate(are_few ? 500 : 1e4);
    EXPECT_LT(totals.simulated_share, 0.5);
    EXPECT_EQ(totals.steps, std::vector<std::int64_t>(num_jobs, max_steps));
    const double whole = are_few ? ms_a_step(sweep.simulate(kWhole)) : of_many;
    expect_near(ms_a_step(totals), whole, 0.03);
  }
}

TEST(ShortenedRun, PredictsTheDurationOfOneJob) {
  const Sweep sweep(1, Memory::small, 4000);
  const RunTotals shortened = sweep.simulate(2000);
  EXPECT_LT(shortened.simulated_share, 0.1);
  expect_alike(shortened, sweep.simulate(kWhole), 0.01);
}

TEST(ShortenedRun, CountsEvaluations) {
  for (const std::int64_t every : {3, 40, 400}) {
    SCOPED_TRACE(every);
    const Sweep sweep(6, Memory::small, 800, every);
    const RunTotals shortened = sweep.simulate(6000), whole = sweep.simulate(kWhole);
    EXPECT_LT(shortened.simulated_share, 0.5);
    expect_alike(shortened, whole, 0.03);
  }
}

TEST(ShortenedRun, SimulatesAShortRunWhole) {
  const Sweep sweep(3, Memory::small, 5, 2);
  const RunTotals whole = sweep.simulate(kWhole), same = sweep.simulate(1e6);
  EXPECT_EQ(same.simulated_share, 1);
  EXPECT_EQ(same.wall_s, whole.wall_s);
}

TEST(ShortenedRun, ShortensToWholeRungs) {
  std::vector<RunLength> lengths;
  const std::vector<std::shared_ptr<const JobPlan>> jobs(
      30, plan_job(chain(2), {.max_steps = 90}, 1_MiB));
  const auto simulate = [&](const RunLength& length) {
    lengths.push_back(length);
    const std::int64_t rung = length.steps(10);
    EXPECT_NEAR(static_cast<double>(rung), 10 * length.share * length.times, 1e-6);
    RunTotals totals;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      totals.steps.push_back(j < 20 ? rung : j < 27 ? 3 * rung : length.steps(90));
      totals.wall_s += static_cast<double>(totals.steps.back());
    }
    return totals;
  };
  const RunTotals totals = simulate_shortened(jobs, 10, 2000, simulate);
  ASSERT_EQ(lengths.size(), 2u);
  std::map<std::int64_t, int> ends;
  for (const std::int64_t steps : totals.steps) ++ends[steps];
  EXPECT_EQ(ends, (std::map<std::int64_t, int>{{10, 20}, {30, 7}, {90, 3}}));
  EXPECT_NEAR(totals.wall_s, 20 * 10 + 7 * 30 + 3 * 90, 1e-6);
}

}  // namespace
}  // namespace spillway
