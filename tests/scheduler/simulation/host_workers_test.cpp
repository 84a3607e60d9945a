#include "scheduler/simulation/host_workers.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

void expect_span(const HostWorkers::Span& span, double begin_s, double end_s) {
  EXPECT_DOUBLE_EQ(span.begin_s, begin_s);
  EXPECT_DOUBLE_EQ(span.end_s, end_s);
}

TEST(HostWorkers, RunAnOpOfOneGrainOnTheThreadThatIsFreeFirst) {
  HostWorkers workers(2);
  expect_span(workers.run(1, 4, 1), 1, 5);
  expect_span(workers.run(1, 2, 1), 1, 3);
  expect_span(workers.run(1, 1, 1), 3, 4);
  EXPECT_EQ(workers.num_busy(3.5), 2);
  EXPECT_EQ(workers.num_busy(4), 1);
}

TEST(HostWorkers, ShareTheGrainsOfAnOp) {
  HostWorkers workers(4);
  expect_span(workers.run(0, 8, 100), 0, 2);
  expect_span(workers.run(0, 8, 2), 2, 6);
  expect_span(workers.run(0, 8, 100), 2, 6);
}

/// Each takes the more the earlier it is free, and one that is free too late takes none.
TEST(HostWorkers, EndAnOpTogether) {
  HostWorkers workers(3);
  workers.run(0, 1, 1);
  workers.run(0, 9, 1);
  expect_span(workers.run(0, 3, 100), 0, 2);
  EXPECT_EQ(workers.num_busy(2), 1);
}

}  // namespace
}  // namespace spillway
