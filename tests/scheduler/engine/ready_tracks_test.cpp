#include "scheduler/engine/ready_tracks.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr DeviceId kDevice0(0), kDevice1(1), kAny;

ReadyTrack track_of(int job, double priority, int track = 0) {
  return {priority, JobId(job), track};
}

/// The job that is first in order, or -1.
int first_job(const ReadyTracks& tracks, DeviceId device, int refused = -1) {
  const auto first =
      tracks.first(device, [&](const ReadyTrack& track) { return track.job != JobId(refused); });
  return first ? static_cast<int>(first->job.value) : -1;
}

TEST(ReadyTracks, OrdersByPriorityThenJobThenTrack) {
  EXPECT_TRUE(track_of(2, 5) < track_of(1, 4));
  EXPECT_TRUE(track_of(1, 5, 1) < track_of(2, 5, 0));
  EXPECT_TRUE(track_of(1, 5, 0) < track_of(1, 5, 1));
  EXPECT_FALSE(track_of(1, 5) < track_of(1, 5));
}

TEST(ReadyTracks, OffersSharedAndPlacedTracks) {
  ReadyTracks tracks(2);
  tracks.add(track_of(0, 1), kAny);
  tracks.add(track_of(1, 2), kDevice1);
  EXPECT_EQ(first_job(tracks, kDevice0), 0);
  EXPECT_EQ(first_job(tracks, kDevice1), 1);
  EXPECT_TRUE(tracks.any_only_for(kDevice1));
  EXPECT_FALSE(tracks.any_only_for(kDevice0));
  tracks.remove(track_of(1, 2), kDevice1);
  EXPECT_EQ(first_job(tracks, kDevice1), 0);
  tracks.remove(track_of(0, 1), kAny);
  EXPECT_FALSE(tracks.any_for_all());
  EXPECT_EQ(first_job(tracks, kDevice1), -1);
}

TEST(ReadyTracks, SkipsForbiddenTracks) {
  ReadyTracks tracks(2);
  for (int job = 0; job < 3; ++job) tracks.add(track_of(job, 3 - job), kAny);
  tracks.add(track_of(3, 1.5), kDevice1);
  EXPECT_EQ(first_job(tracks, kDevice0, 0), 1);
  EXPECT_EQ(first_job(tracks, kDevice1, 0), 1);
  tracks.remove(track_of(1, 2), kAny);
  EXPECT_EQ(first_job(tracks, kDevice1, 0), 3) << "its own is asked for nothing";
}

TEST(ReadyTracks, OffersTracksToANewDevice) {
  ReadyTracks tracks(1);
  tracks.add(track_of(1, 1), kAny);
  tracks.add_device();
  EXPECT_EQ(first_job(tracks, kDevice1), 1);
  EXPECT_FALSE(tracks.any_only_for(kDevice1));
  tracks.add(track_of(2, 2), kDevice1);
  EXPECT_EQ(first_job(tracks, kDevice1), 2);
  EXPECT_EQ(first_job(tracks, kDevice0), 1);
}

}  // namespace
}  // namespace spillway
