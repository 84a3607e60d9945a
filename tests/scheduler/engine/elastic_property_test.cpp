#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>

#include "tests/support/random/from_environment.h"
#include "tests/support/run/elastic_run.h"

/// At any moment, devices join, leave, are lost or hang; links slow down; jobs arrive, stop, fail,
/// pause, are held, suspended, interrupted or finished early, and change their plan.
/// `SPILLWAY_PROPERTY_SEED=7 elastic_property_test` replays one run.
namespace spillway {
namespace {

using testing::campaign_size;
using testing::ElasticRun;
using testing::ElasticWorkload;
using testing::from_environment;
using testing::RandomElasticWorkload;

TEST(ElasticProperty, KeepsInvariantsAndStarvesNoJob) {
  const std::uint64_t only = from_environment("SPILLWAY_PROPERTY_SEED", 0);
  const std::uint64_t last =
      only ? only : from_environment("SPILLWAY_PROPERTY_RUNS", campaign_size(4000, 200));
  ElasticRun::Counts all;
  std::size_t num_runs = 0, num_calls = 0;
  for (std::uint64_t seed = only ? only : 1; seed <= last; ++seed) {
    SCOPED_TRACE("SPILLWAY_PROPERTY_SEED=" + std::to_string(seed));
    const ElasticWorkload workload = RandomElasticWorkload(seed).make();
    ElasticRun run(workload);
    ASSERT_NO_THROW(run.run());
    run.expect_good_end();
    all += run.counts;
    num_runs += 1;
    num_calls += workload.changes.size();
    if (::testing::Test::HasFailure()) return;
  }
  std::cout << num_runs << " runs, " << num_calls << " calls\n";
  if (last < 500 || only) return;
  const int tenth = static_cast<int>(last / 10);
  EXPECT_GT(all.redone, tenth);
  EXPECT_GT(all.lost, 5 * tenth);
  EXPECT_GT(all.replanned, tenth);
  EXPECT_GT(all.removed, tenth / 2);
  EXPECT_GT(all.stopped, tenth);
  EXPECT_GT(all.failed, tenth);
  EXPECT_GT(all.done, 10 * tenth);
  EXPECT_GT(all.moved, tenth);
  EXPECT_GT(all.lent, tenth);
  EXPECT_GT(all.kept, tenth);
  EXPECT_GT(all.rested, tenth);
  EXPECT_GT(all.done_early, tenth / 2);
  EXPECT_GT(all.graphs_used, 10 * tenth);
  EXPECT_GT(all.graphs_dropped, tenth);
  EXPECT_GT(all.interrupted, tenth);
}

TEST(ElasticProperty, RepeatsTheLogForTheSameSeed) {
  std::set<std::string> logs;
  const std::uint64_t seeds = campaign_size(50, 15);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    const ElasticWorkload workload = RandomElasticWorkload(seed).make(),
                          again = RandomElasticWorkload(seed).make();
    ElasticRun first(workload), second(again);
    first.run();
    second.run();
    ASSERT_FALSE(first.log.empty());
    EXPECT_EQ(first.log, second.log);
    logs.insert(first.log);
  }
  EXPECT_EQ(logs.size(), seeds) << "and another seed another one";
}

}  // namespace
}  // namespace spillway
