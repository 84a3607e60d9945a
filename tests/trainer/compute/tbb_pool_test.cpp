#include "trainer/compute/tbb_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace spillway {
namespace {

/// On a pool of two threads.
TEST(TbbPool, RunsOpsBesideOneThatLeavesAThreadIdle) {
  std::promise<void> second_ends;
  TbbPool pool(2);
  pool.submit(1, [&] { second_ends.get_future().wait(); });
  pool.submit(100, [&] { second_ends.set_value(); });
}

TEST(TbbPool, BeginsNothingBesideOpsWhoseGrainsTakeAllThreads) {
  std::promise<void> first_begins, first_may_end;
  std::atomic<int> ended = 0;
  std::atomic<int> seen_by_first = -1;
  {
    TbbPool pool(2);
    pool.submit(100, [&] {
      first_begins.set_value();
      first_may_end.get_future().wait();
      seen_by_first = ended.load();
    });
    first_begins.get_future().wait();
    for (int i = 0; i < 50; ++i) pool.submit(1, [&] { ++ended; });
    first_may_end.set_value();
  }
  EXPECT_EQ(seen_by_first, 0);
  EXPECT_EQ(ended, 50);
}

}  // namespace
}  // namespace spillway
