#include "scheduler/elastic/sharing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string_view>
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

TEST(Sharing, ReportsOnlyChanges) {
  Sharing sharing(make_allocator("wfs"), 8);
  sharing.arrive(contender(0, 1, 8));
  EXPECT_EQ(decided(sharing), (Changes{{0, 0, 8}}));
  EXPECT_EQ(decided(sharing), Changes{});
  sharing.arrive(contender(1, 1, 8));
  EXPECT_EQ(decided(sharing), (Changes{{0, 8, 4}, {1, 0, 4}}));
  EXPECT_EQ(sharing.lanes_given(), 8);
}

TEST(Sharing, TracksAResizeUntilItsCommit) {
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

TEST(Sharing, ReusesFreedAndNewDevices) {
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

TEST(Sharing, LearnsSpeedAndRemainingWorkFromSteps) {
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

/// Random arrivals, ends, commits and devices. Keeps its own record of the lanes.
class RandomRun {
 public:
  RandomRun(std::string_view allocator, unsigned seed)
      : random_(seed),
        num_devices_(from(1, 9)),
        sharing_(make_allocator(allocator), num_devices_) {}

  void play() {
    for (int event = 0; event < 60; ++event) {
      happen();
      apply();
    }
    while (!sharing_.jobs().empty()) {  // no more arrivals
      finish_resizes();
      apply();
      end_one();
      apply();
    }
    for (const auto& [job, lanes] : lanes_) EXPECT_TRUE(served_.contains(job)) << "one starved";
  }

 private:
  int from(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void happen() {
    const int what = from(0, 9);
    if (what <= 3) {
      const JobId id(lanes_.size());
      lanes_[id] = 0;
      sharing_.arrive({.job = id,
                       .priority = from(1, 10),
                       .arrival_s = now_s_++,
                       .most_lanes = from(1, 10),
                       .remaining_s = static_cast<double>(from(1, 1000))});
    } else if (what <= 5) {
      end_one();
    } else if (what == 6) {
      sharing_.set_num_devices(num_devices_ = from(num_devices_, 12));
    } else if (what <= 8) {
      finish_resizes();
    } else {
      for (const auto& [job, lanes] : running()) sharing_.committed(job, lanes, from(1, 50), 100);
    }
  }

  std::map<JobId, int> running() const {
    std::map<JobId, int> all;
    for (const Contender& job : sharing_.jobs()) {
      if (job.lanes > 0) all[job.job] = job.lanes;
    }
    return all;
  }
  void end_one() {
    if (!running().empty()) sharing_.end(running().begin()->first);
  }
  void finish_resizes() {
    for (const auto& [job, lanes] : running()) sharing_.resized(job);
  }

  void apply() {
    for (const auto& change : sharing_.decide()) {
      EXPECT_EQ(change.before, lanes_.at(change.job));
      EXPECT_GT(change.lanes, 0) << "who has started goes on";
      lanes_[change.job] = change.lanes;
      served_.insert(change.job);
    }
    int sum = 0;
    for (const Contender& job : sharing_.jobs()) {
      EXPECT_EQ(job.lanes, lanes_.at(job.job)) << "a change was not said";
      sum += job.lanes;
    }
    EXPECT_EQ(sum, sharing_.lanes_given());
    EXPECT_LE(sum, std::max(num_devices_, static_cast<int>(sharing_.jobs().size())));
    EXPECT_TRUE(sum > 0 || sharing_.jobs().empty()) << "all wait, devices idle";
  }

  std::mt19937 random_;
  int num_devices_;
  Sharing sharing_;
  double now_s_ = 0;
  std::map<JobId, int> lanes_;
  std::set<JobId> served_;
};

TEST(Sharing, StarvesNoJob) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    for (const std::string_view name : kAllocatorNames) {
      SCOPED_TRACE(::testing::Message() << name << ", seed " << seed);
      RandomRun(name, seed).play();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace spillway
