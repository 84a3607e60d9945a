#include "scheduler/engine/ready_lanes.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr DeviceId kFirst(0), kSecond(1), kAny;

ReadyLane lane_of(int job, double priority, int lane = 0) { return {priority, JobId(job), lane}; }

/// The job that is first in order, or -1.
int first_job(const ReadyLanes& lanes, DeviceId device, int refused = -1) {
  const auto first =
      lanes.first(device, [&](const ReadyLane& lane) { return lane.job != JobId(refused); });
  return first ? static_cast<int>(first->job.value) : -1;
}

TEST(ReadyLanes, OrdersByPriorityThenJobThenLane) {
  EXPECT_TRUE(lane_of(2, 5) < lane_of(1, 4));
  EXPECT_TRUE(lane_of(1, 5, 1) < lane_of(2, 5, 0));
  EXPECT_TRUE(lane_of(1, 5, 0) < lane_of(1, 5, 1));
  EXPECT_FALSE(lane_of(1, 5) < lane_of(1, 5));
}

TEST(ReadyLanes, OffersSharedAndPlacedLanes) {
  ReadyLanes lanes(2);
  lanes.add(lane_of(0, 1), kAny);
  lanes.add(lane_of(1, 2), kSecond);
  EXPECT_EQ(first_job(lanes, kFirst), 0);
  EXPECT_EQ(first_job(lanes, kSecond), 1);
  EXPECT_TRUE(lanes.any_only_for(kSecond));
  EXPECT_FALSE(lanes.any_only_for(kFirst));
  lanes.remove(lane_of(1, 2), kSecond);
  EXPECT_EQ(first_job(lanes, kSecond), 0);
  lanes.remove(lane_of(0, 1), kAny);
  EXPECT_FALSE(lanes.any_for_all());
  EXPECT_EQ(first_job(lanes, kSecond), -1);
}

TEST(ReadyLanes, SkipsForbiddenLanes) {
  ReadyLanes lanes(2);
  for (int job = 0; job < 3; ++job) lanes.add(lane_of(job, 3 - job), kAny);
  lanes.add(lane_of(3, 1.5), kSecond);
  EXPECT_EQ(first_job(lanes, kFirst, 0), 1);
  EXPECT_EQ(first_job(lanes, kSecond, 0), 1);
  lanes.remove(lane_of(1, 2), kAny);
  EXPECT_EQ(first_job(lanes, kSecond, 0), 3) << "its own is asked for nothing";
}

TEST(ReadyLanes, OffersLanesToANewDevice) {
  ReadyLanes lanes(1);
  lanes.add(lane_of(1, 1), kAny);
  lanes.add_device();
  EXPECT_EQ(first_job(lanes, kSecond), 1);
  EXPECT_FALSE(lanes.any_only_for(kSecond));
  lanes.add(lane_of(2, 2), kSecond);
  EXPECT_EQ(first_job(lanes, kSecond), 2);
  EXPECT_EQ(first_job(lanes, kFirst), 1);
}

}  // namespace
}  // namespace spillway
