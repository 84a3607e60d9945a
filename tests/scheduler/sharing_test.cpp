#include "scheduler/sharing.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

Contender contender(int number, int priority, int most_lanes) {
  return {.job = JobId(number),
          .priority = priority,
          .arrival_s = static_cast<double>(number),
          .most_lanes = most_lanes};
}

/// Changes as {job, before, after}.
std::vector<std::vector<int>> decided(Sharing& sharing) {
  std::vector<std::vector<int>> all;
  for (const auto& change : sharing.decide()) {
    all.push_back({static_cast<int>(change.job.value), change.before, change.lanes});
  }
  return all;
}

using Changes = std::vector<std::vector<int>>;

TEST(Sharing, SaysOnlyWhatChanges) {
  Sharing sharing(make_allocator("wfs"), 8);
  sharing.arrive(contender(0, 1, 8));
  EXPECT_EQ(decided(sharing), (Changes{{0, 0, 8}}));
  EXPECT_EQ(decided(sharing), Changes{});
  sharing.arrive(contender(1, 1, 8));
  EXPECT_EQ(decided(sharing), (Changes{{0, 8, 4}, {1, 0, 4}}));
  EXPECT_EQ(sharing.lanes_given(), 8);
}

TEST(Sharing, AResizeIsPendingUntilItIsDone) {
  Sharing sharing(make_allocator("wfs"), 8);
  sharing.arrive(contender(0, 1, 8));
  sharing.decide();
  EXPECT_FALSE(sharing.jobs()[0].resizing) << "a start is no resize";
  sharing.arrive(contender(1, 1, 8));
  sharing.decide();
  sharing.arrive(contender(2, 1, 8));
  EXPECT_EQ(decided(sharing), Changes{}) << "while job 0 shrinks";
  sharing.resized(JobId(0));
  EXPECT_EQ(decided(sharing), (Changes{{1, 4, 2}, {2, 0, 2}}));
}

TEST(Sharing, EndsAndDevicesMakeRoom) {
  Sharing sharing(make_allocator("fill"), 4);
  for (int j = 0; j < 3; ++j) sharing.arrive(contender(j, 1, 8));
  sharing.decide();
  sharing.end(JobId(1));
  EXPECT_EQ(sharing.jobs().size(), 2u);
  sharing.decide();
  EXPECT_EQ(sharing.lanes_given(), 4);
  sharing.set_num_devices(7);
  sharing.decide();
  EXPECT_EQ(sharing.lanes_given(), 7);
}

TEST(Sharing, StepsTellSpeedsAndWhatIsLeft) {
  Sharing sharing(make_allocator("fill"), 5);
  for (int j = 0; j < 2; ++j) sharing.arrive(contender(j, 1, 8));
  EXPECT_EQ(decided(sharing), (Changes{{0, 0, 3}, {1, 0, 2}})) << "alike as far as is known";
  sharing.committed(JobId(0), 3, /*step_s=*/2, /*steps_left=*/100);  // on one lane: 6 s
  EXPECT_NEAR(sharing.jobs()[0].remaining_s, 600, 1e-9);
  sharing.committed(JobId(1), 2, 10, 100);
  EXPECT_NEAR(sharing.jobs()[1].remaining_s, 2000, 1e-9);
  EXPECT_EQ(decided(sharing), (Changes{{0, 3, 2}, {1, 2, 3}})) << "the longer one gets more";
  sharing.committed(JobId(1), 3, 10.0 / 1.01, 99);
  EXPECT_EQ(decided(sharing), (Changes{{0, 2, 4}, {1, 3, 1}})) << "but gains nothing by it";
}

}  // namespace
}  // namespace spillway
