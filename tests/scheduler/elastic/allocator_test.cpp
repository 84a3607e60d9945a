#include "scheduler/elastic/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "spillway/error.h"

namespace spillway {
namespace {

using Lanes = std::vector<int>;

/// Jobs arrive in the order of add().
class Jobs {
 public:
  Jobs& add(int priority, int most_lanes, int lanes = 0, SpeedCurve speed = SpeedCurve()) {
    const auto number = jobs_.size();
    jobs_.push_back({.job = JobId(number),
                     .priority = priority,
                     .arrival_s = static_cast<double>(number),
                     .most_lanes = most_lanes,
                     .lanes = lanes,
                     .speed = std::move(speed)});
    return *this;
  }
  Jobs& remaining(std::initializer_list<double> seconds) {
    std::size_t j = 0;
    for (const double remaining_s : seconds) jobs_.at(j++).remaining_s = remaining_s;
    return *this;
  }
  Jobs& resizing(std::size_t j) {
    jobs_[j].resizing = true;
    return *this;
  }
  Lanes share(const char* allocator, int num_devices) const {
    return make_allocator(allocator)->share(jobs_, num_devices);
  }

 private:
  std::vector<Contender> jobs_;
};

TEST(PriorityAllocator, AdmitsByPriorityThenByArrival) {
  EXPECT_EQ(Jobs().add(1, 4).add(5, 4).add(5, 2).share("priority", 8), (Lanes{0, 4, 2}));
  EXPECT_EQ(Jobs().add(5, 4).add(5, 4).add(5, 4).share("priority", 8), (Lanes{4, 4, 0}));
}

TEST(PriorityAllocator, KeepsTheQueueOrder) {
  EXPECT_EQ(Jobs().add(1, 4, 4).add(5, 8).add(5, 1).share("priority", 8), (Lanes{4, 0, 0}));
}

TEST(PriorityAllocator, NeverResizes) {
  EXPECT_EQ(Jobs().add(1, 8, 2).add(9, 4).share("priority", 8), (Lanes{2, 4}));
}

TEST(PriorityAllocator, LimitsDemandToTheDevices) {
  EXPECT_EQ(Jobs().add(1, 8).share("priority", 3), (Lanes{3}));
}

TEST(Wfs, SharesByPriorityInPowersOfTwo) {
  EXPECT_EQ(Jobs().add(1, 8).add(1, 8).share("wfs", 8), (Lanes{4, 4}));
  EXPECT_EQ(Jobs().add(10, 8).add(1, 8).add(1, 8).share("wfs", 8), (Lanes{4, 2, 2}))
      << "6 are rounded down to 4; what is left doubles the shares of the others";
  EXPECT_EQ(Jobs().add(1, 8).add(1, 8).add(1, 8).share("wfs", 8), (Lanes{4, 2, 2}));
}

TEST(Wfs, CapsSharesByDemandAndRedistributesTheRest) {
  EXPECT_EQ(Jobs().add(9, 1).add(1, 8).share("wfs", 8), (Lanes{1, 4}))
      << "7 of 8, as a power of two";
  EXPECT_EQ(Jobs().add(9, 2).add(1, 8).add(1, 4).share("wfs", 12), (Lanes{2, 4, 4}));
}

TEST(Wfs, GivesEachRunningJobADevice) {
  EXPECT_EQ(Jobs().add(100, 8).add(1, 8).add(1, 8).add(1, 8).share("wfs", 4), (Lanes{1, 1, 1, 1}));
}

TEST(Wfs, QueuesAJobWithoutAFreeDevice) {
  EXPECT_EQ(Jobs().add(1, 1, 1).add(1, 1, 1).add(1, 1).share("wfs", 2), (Lanes{1, 1, 0}));
}

TEST(Wfs, NeverShrinksAHigherPriority) {
  EXPECT_EQ(Jobs().add(5, 8, 8).add(1, 8).share("wfs", 8), (Lanes{8, 0}));
  EXPECT_EQ(Jobs().add(5, 8, 8).add(5, 8).share("wfs", 8), (Lanes{4, 4})) << "but an equal one";
  EXPECT_EQ(Jobs().add(5, 8, 8).add(9, 8).share("wfs", 8), (Lanes{4, 4})) << "and a lower one";
}

TEST(Wfs, LetsHigherPrioritiesGrow) {
  EXPECT_EQ(Jobs().add(5, 4, 1).share("wfs", 4), (Lanes{4}));
  EXPECT_EQ(Jobs().add(5, 4, 1).add(1, 4).share("wfs", 4), (Lanes{4, 0}));
  EXPECT_EQ(Jobs().add(5, 4, 1).add(1, 4).share("wfs", 5), (Lanes{4, 1}));
}

TEST(Wfs, KeepsTheQueueOrder) {
  // The second job would shrink the first. The third would not, but it is behind the second.
  EXPECT_EQ(Jobs().add(9, 4, 4).add(8, 4).add(1, 1).share("wfs", 5), (Lanes{4, 0, 0}));
  EXPECT_EQ(Jobs().add(9, 4, 4).add(1, 1).share("wfs", 5), (Lanes{4, 1}));
}

TEST(Wfs, WaitsForAPendingResize) {
  Jobs jobs = Jobs().add(1, 8, 2).add(1, 8);
  EXPECT_EQ(jobs.share("wfs", 8), (Lanes{4, 4}));
  EXPECT_EQ(jobs.resizing(0).share("wfs", 8), (Lanes{2, 0}));
}

TEST(Wfs, SuspendsJobsWhenDevicesAreLost) {
  EXPECT_EQ(Jobs().add(1, 2, 2).add(5, 2, 2).add(3, 2, 2).share("wfs", 2), (Lanes{0, 1, 1}));
}

TEST(Fill, StartsEveryJobAtOnce) {
  EXPECT_EQ(Jobs().add(1, 8).add(9, 8).add(1, 1).share("fill", 2), (Lanes{1, 1, 1}));
}

TEST(Fill, LeavesNoUsefulDeviceIdle) {
  EXPECT_EQ(Jobs().add(1, 8).share("fill", 7), (Lanes{7})) << "any number of lanes";
  EXPECT_EQ(Jobs().add(1, 2).add(1, 8).share("fill", 7), (Lanes{2, 5}));
  EXPECT_EQ(Jobs().add(1, 2).add(1, 3).share("fill", 8), (Lanes{2, 3})) << "they ask for no more";
}

TEST(Fill, GivesADeviceToTheLargestGain) {
  const SpeedCurve well(0.9), badly(0.1);
  EXPECT_EQ(Jobs().add(1, 8, 0, badly).add(1, 8, 0, well).share("fill", 5), (Lanes{1, 4}));
  EXPECT_EQ(Jobs().add(9, 8, 0, badly).add(1, 8, 0, well).share("fill", 5), (Lanes{3, 2}))
      << "times priority";
}

TEST(Fill, FavoursTheLongestRemainingTime) {
  EXPECT_EQ(Jobs().add(1, 8).add(1, 8).remaining({100, 1000}).share("fill", 4), (Lanes{1, 3}));
  EXPECT_EQ(Jobs().add(1, 8).add(1, 8).remaining({1000, 100}).share("fill", 4), (Lanes{3, 1}));
}

TEST(Fill, IgnoresSmallGains) {
  EXPECT_EQ(Jobs().add(1, 8, 2).add(1, 8, 1).remaining({100, 110}).share("fill", 3), (Lanes{2, 1}));
  EXPECT_EQ(Jobs().add(1, 8, 2).add(1, 8, 1).remaining({100, 150}).share("fill", 3), (Lanes{1, 2}));
  EXPECT_EQ(Jobs().add(1, 8, 1).add(1, 8, 1).remaining({100, 110}).share("fill", 3), (Lanes{1, 2}))
      << "but where a device would idle";
  EXPECT_EQ(Jobs().add(1, 8, 2).add(1, 8, 1).add(1, 8).share("fill", 3), (Lanes{1, 1, 1}))
      << "and where a job would wait";
}

TEST(Fill, UsesMeasuredSpeeds) {
  SpeedCurve flat;  // expected to scale, measured not to
  flat.observe(1, 100);
  flat.observe(2, 99);
  EXPECT_EQ(Jobs().add(1, 8, 0, flat).add(1, 2).share("fill", 4), (Lanes{1, 2}))
      << "a device that would only do harm stays free";
  SpeedCurve scale_free;
  scale_free.observe(1, 1e6);
  scale_free.observe(2, 1.1e6);
  EXPECT_EQ(Jobs().add(1, 2, 0, scale_free).add(1, 2).share("fill", 3), (Lanes{1, 2}))
      << "large examples are worth as much as small ones";
}

TEST(Fill, LooksPastASizeWithoutGain) {
  SpeedCurve stairs;  // eight groups: 5, 6 and 7 lanes are as fast as 4
  for (const auto& [lanes, speed] :
       {std::pair{1, 8}, {2, 16}, {3, 20}, {4, 32}, {5, 32}, {6, 32}, {7, 32}, {8, 64}}) {
    stairs.observe(lanes, speed);
  }
  EXPECT_EQ(Jobs().add(1, 8, 0, stairs).share("fill", 8), (Lanes{8}));
  EXPECT_EQ(Jobs().add(1, 8, 0, stairs).share("fill", 7), (Lanes{4})) << "no use for the rest";
  EXPECT_EQ(Jobs().add(1, 8, 0, stairs).add(1, 8, 0, SpeedCurve(0.1)).share("fill", 7),
            (Lanes{4, 3}));
}

/// The contract of every allocator, for any jobs.
TEST(Allocator, KeepsItsContractOnRandomJobs) {
  std::mt19937 random(1);
  const auto from = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int run = 0; run < 3000; ++run) {
    SCOPED_TRACE(run);
    const int num_devices = from(1, 12), num_jobs = from(1, 12);
    Jobs jobs;
    Lanes most, now;
    int taken = 0;
    for (int j = 0; j < num_jobs; ++j) {
      most.push_back(from(1, 10));
      now.push_back(from(0, std::min(most.back(), num_devices - taken)));
      taken += now.back();
      jobs.add(from(1, 10), most.back(), now.back(), SpeedCurve(from(0, 10) / 10.0));
    }
    for (const std::string_view name : kAllocatorNames) {
      SCOPED_TRACE(name);
      const Lanes lanes = jobs.share(name.data(), num_devices);
      ASSERT_EQ(lanes.size(), most.size());
      for (std::size_t j = 0; j < lanes.size(); ++j) {
        EXPECT_GE(lanes[j], 0);
        EXPECT_LE(lanes[j], std::min(most[j], num_devices));
        EXPECT_TRUE(now[j] == 0 || lanes[j] > 0) << "who runs goes on";
      }
      const int sum = std::accumulate(lanes.begin(), lanes.end(), 0);
      EXPECT_LE(sum, name == "fill" ? std::max(num_devices, num_jobs) : num_devices);
      EXPECT_GT(sum, 0);
    }
    if (HasFailure()) break;
  }
}

TEST(Allocator, IsFoundByName) {
  for (std::string_view name : kAllocatorNames) EXPECT_EQ(make_allocator(name)->name(), name);
  EXPECT_EQ(make_allocator("drf"), nullptr);
}

}  // namespace
}  // namespace spillway
