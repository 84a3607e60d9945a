#include "scheduler/elastic/lane_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "scheduler/elastic/allocator.h"

namespace spillway {
namespace {

const JobId kJob(0), kOther(1);

/// A controller, a clock, and the last decisions as (job, before, lanes).
class Told {
 public:
  using Changes = std::vector<std::tuple<std::uint32_t, int, int>>;

  explicit Told(std::string_view allocator, int num_devices = 4)
      : controller(make_allocator(allocator), num_devices) {}

  Changes decide() {
    changes = controller.decide();
    Changes all;
    for (const LaneChange& change : changes) {
      all.emplace_back(change.job.value, change.before, change.lanes);
    }
    return all;
  }
  /// Decides, and applies the decision at once.
  Changes settle() {
    const Changes all = decide();
    for (const LaneChange& change : changes) controller.resized(change.job);
    return all;
  }
  /// Commits steps of a job, each `step_s` after the previous one.
  void commit(JobId job, double step_s, int times = 1, const std::vector<DeviceWork>& work = {}) {
    for (; times > 0; --times) {
      now_s += step_s;
      controller.committed({job, ++step, work}, now_s);
    }
  }

  LaneController controller;
  std::vector<LaneChange> changes;
  double now_s = 0;
  std::int64_t step = 0;
};

LaneDemand demand(JobId job, int priority = 1, int most_lanes = 4) {
  return {.job = job,
          .lanes = most_lanes,
          .most_lanes = most_lanes,
          .sizes = useful_lanes(8, 8),
          .priority = priority,
          .max_steps = 1000};
}

/// Without sharing.
LaneDemand scaled(RuleKind rule, int lanes, const HeuristicParams& params = {}) {
  LaneDemand job = demand(kJob);
  job.lanes = lanes;
  job.rules = {make_heuristic(rule, params)};
  return job;
}

TEST(LaneController, ChangesNothingWithoutSharesAndRules) {
  Told told("none");
  EXPECT_FALSE(told.controller.shares());
  LaneDemand fixed = demand(kJob);
  fixed.fixed = true;
  told.controller.arrive(fixed, 0);
  told.commit(kJob, 1, 20);
  told.controller.set_num_devices(2);
  told.controller.limit(kJob, 2);
  EXPECT_EQ(told.decide(), Told::Changes{});
}

TEST(LaneController, DecidesOnceForSimultaneousJobs) {
  Told told("wfs", 3);
  EXPECT_TRUE(told.controller.shares());
  told.controller.arrive(demand(kJob, 1), 0);
  told.controller.arrive(demand(kOther, 2), 0);
  EXPECT_TRUE(told.controller.is_due());
  EXPECT_EQ(told.decide(), (Told::Changes{{0, 0, 1}, {1, 0, 2}}));
  EXPECT_FALSE(told.controller.is_due());
  EXPECT_EQ(told.changes[0].reason, "wfs");
  told.controller.end(kOther);
  EXPECT_TRUE(told.controller.is_due());
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 1, 2}}));
}

TEST(LaneController, DecidesAfterPendingResizes) {
  Told told("wfs", 8);
  told.controller.arrive(demand(kJob, 1, 8), 0);
  EXPECT_EQ(told.decide(), (Told::Changes{{0, 0, 8}})) << "a start is no resize";
  told.controller.arrive(demand(kOther, 1, 8), 0);
  EXPECT_EQ(told.decide(), (Told::Changes{{0, 8, 4}, {1, 0, 4}}));
  told.controller.arrive(demand(JobId(2), 1, 8), 0);
  EXPECT_EQ(told.decide(), Told::Changes{}) << "while job 0 shrinks";
  told.controller.resized(kJob);
  EXPECT_EQ(told.decide(), (Told::Changes{{1, 4, 2}, {2, 0, 2}}));
}

TEST(LaneController, QueuesAJobLargerThanItsShare) {
  Told told("priority");
  told.controller.arrive(demand(kJob), 0);
  told.controller.arrive(demand(kOther, 9), 0);
  EXPECT_EQ(told.settle(), (Told::Changes{{1, 0, 4}}));
  told.controller.end(kOther);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 0, 4}}));
}

TEST(LaneController, PausesJobsWhenDevicesLeave) {
  Told told("wfs", 2);
  told.controller.arrive(demand(kJob), 0);
  told.controller.arrive(demand(kOther, 5), 0);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 0, 1}, {1, 0, 1}}));
  told.controller.set_num_devices(1);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 1, 0}}));
  told.controller.set_num_devices(0);
  EXPECT_EQ(told.settle(), Told::Changes{}) << "nobody could go on in another's place";
  told.controller.set_num_devices(3);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 0, 1}, {1, 1, 2}}));
}

/// A rule adds lanes while that helps, then goes back.
TEST(LaneController, AppliesRulesAfterCommits) {
  Told told("none");
  told.controller.arrive(scaled(RuleKind::throughput, 1), 0);
  told.commit(kJob, 5);  // first step includes admission: ignored
  told.commit(kJob, 1, kStepsToMeasure - 1);
  EXPECT_EQ(told.decide(), Told::Changes{});
  told.commit(kJob, 1);
  EXPECT_EQ(told.decide(), (Told::Changes{{0, 1, 2}}));
  EXPECT_EQ(told.changes[0].reason, "throughput: tries 2 devices");
  told.commit(kJob, 1);  // still on one lane
  EXPECT_EQ(told.decide(), Told::Changes{}) << "it is on its way";
  told.controller.resized(kJob);
  told.commit(kJob, 7);  // includes the change: ignored
  told.commit(kJob, 0.99, kStepsToMeasure);
  EXPECT_EQ(told.decide(), (Told::Changes{{0, 2, 1}}));
  EXPECT_EQ(told.changes[0].reason, "throughput: continues with 1 device");
}

/// Step numbers are the job's own, even if it joins late.
TEST(LaneController, AppliesRulesToAResumedJob) {
  const auto lanes_after = [](std::int64_t max_steps) {
    Told told("none");
    LaneDemand job = scaled(RuleKind::throughput, 1);
    job.first_step = told.step = 900;
    job.max_steps = max_steps;
    told.controller.arrive(job, 0);
    told.commit(kJob, 1, kStepsToMeasure + 1);
    return told.decide();
  };
  EXPECT_EQ(lanes_after(1000), (Told::Changes{{0, 1, 2}}));
  EXPECT_EQ(lanes_after(900 + kStepsToMeasure + 1), Told::Changes{}) << "it has ended";
}

TEST(LaneController, IgnoresTimesOfRepeatedSteps) {
  Told told("none");
  told.controller.arrive(scaled(RuleKind::throughput, 1), 0);
  told.commit(kJob, 1, kStepsToMeasure);
  told.controller.redone(kJob);
  told.commit(kJob, 30);
  EXPECT_EQ(told.decide(), Told::Changes{}) << "one is missing";
  told.commit(kJob, 1);
  EXPECT_EQ(told.decide(), (Told::Changes{{0, 1, 2}}));
}

TEST(LaneController, LimitsTheDemandByRules) {
  Told told("fill");
  LaneDemand job = demand(kJob);
  job.rules = {make_heuristic(RuleKind::throughput)};
  told.controller.arrive(job, 0);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 0, 4}}));
  told.commit(kJob, 1, kStepsToMeasure + 2);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 4, 3}})) << "it tries less";
  told.commit(kJob, 1, kStepsToMeasure + 1);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 3, 1}})) << "the fourth brought nothing";
}

TEST(LaneController, UpdatesFillFromSteps) {
  Told told("fill");
  told.controller.arrive(demand(kJob), 0);
  told.controller.arrive(demand(kOther), 0);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 0, 2}, {1, 0, 2}}));
  EXPECT_EQ(told.decide(), Told::Changes{});
  told.commit(kJob, 10, kStepsToMeasure);
  EXPECT_FALSE(told.controller.is_due());
  told.commit(kJob, 10);  // on two lanes, like ten before
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 2, 3}, {1, 2, 1}})) << "its steps are long";
}

TEST(LaneController, FillsByPredictedSpeeds) {
  Told told("fill");
  LaneDemand job = demand(kJob);
  job.speed.predict(1, 1);
  job.speed.predict(2, 1.01);
  LaneDemand other = demand(kOther);
  other.speed.predict(1, 2);
  told.controller.arrive(job, 0);
  told.controller.arrive(other, 0);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 0, 1}, {1, 0, 3}})) << "without having tried";
}

TEST(LaneController, AvoidsAStragglerUntilItLeaves) {
  Told told("none");
  LaneDemand job = scaled(RuleKind::straggler, 4);
  told.controller.arrive(job, 0);
  const auto work = [](double slow_s) {
    return std::vector<DeviceWork>{
        {DeviceId(0), 1, 1}, {DeviceId(1), 1, 1.1}, {DeviceId(2), 1, slow_s}};
  };
  told.commit(kJob, 1, 1, work(1.2));
  EXPECT_EQ(told.decide(), Told::Changes{});
  told.commit(kJob, 1, 20, work(4));
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 4, 4}}));
  EXPECT_EQ(told.changes[0].avoid, std::vector{DeviceId(2)});
  EXPECT_EQ(told.changes[0].reason, "straggler: avoids device 2");
  told.commit(kJob, 1, 1, {{DeviceId(0), 1, 1}, {DeviceId(1), 1, 1}});
  EXPECT_EQ(told.decide(), Told::Changes{}) << "what was seen of it is kept";
  told.controller.forget_device(DeviceId(2));
  told.commit(kJob, 1);
  EXPECT_EQ(told.decide(), Told::Changes{});
}

TEST(LaneController, FixesRequestedLanes) {
  Told told("wfs");
  told.controller.arrive(demand(kJob), 0);
  told.controller.arrive(demand(kOther), 0);
  told.settle();
  told.controller.fix(kJob, 3);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 2, 3}, {1, 2, 1}}));
  told.controller.set_num_devices(2);
  EXPECT_EQ(told.settle(), Told::Changes{}) << "one is left to share, at least";
  told.controller.end(kJob);
  EXPECT_EQ(told.settle(), (Told::Changes{{1, 1, 2}}));

  Told alone("none");
  alone.controller.arrive(scaled(RuleKind::throughput, 1), 0);
  alone.controller.fix(kJob, 2);
  EXPECT_EQ(alone.settle(), (Told::Changes{{0, 1, 2}}));
  alone.commit(kJob, 1, 30);
  EXPECT_EQ(alone.decide(), Told::Changes{}) << "its rule is off";
}

TEST(LaneController, LimitsRulesToSuitableDevices) {
  Told told("none");
  told.controller.arrive(scaled(RuleKind::throughput, 4), 0);
  told.controller.limit(kJob, 2);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 4, 2}}));
  told.commit(kJob, 1, kStepsToMeasure + 2);
  EXPECT_EQ(told.settle(), (Told::Changes{{0, 2, 1}})) << "and not four";
  told.controller.limit(kJob, 4);
  EXPECT_EQ(told.decide(), Told::Changes{}) << "it goes up by itself where that pays";
}

/// Random arrivals, ends, commits, resizes and devices. Keeps its own record of the lanes.
class RandomRun {
 public:
  RandomRun(std::string_view allocator, unsigned seed)
      : random_(seed), num_devices_(from(1, 9)), told_(allocator, num_devices_) {}

  void play() {
    for (int event = 0; event < 60; ++event) {
      happen();
      apply();
    }
    while (!lanes_.empty()) {  // no more arrivals
      finish_resizes();
      apply();
      end_one();
      apply();
    }
    EXPECT_EQ(served_.size(), num_jobs_) << "one starved";
  }

 private:
  int from(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void happen() {
    const int what = from(0, 9);
    if (what <= 3) {
      const JobId id(num_jobs_++);
      lanes_[id] = 0;
      LaneDemand job = demand(id, from(1, 10), from(1, 10));
      job.sizes = useful_lanes(10, 10);
      told_.controller.arrive(job, told_.now_s++);
    } else if (what <= 5) {
      end_one();
    } else if (what == 6) {
      told_.controller.set_num_devices(num_devices_ = from(num_devices_, 12));
    } else if (what <= 8) {
      finish_resizes();
    } else {
      for (const auto& [job, lanes] : lanes_) {
        if (lanes > 0) told_.commit(job, from(1, 50));
      }
    }
  }
  void end_one() {
    const auto running =
        std::ranges::find_if(lanes_, [](const auto& job) { return job.second > 0; });
    if (running == lanes_.end()) return;
    told_.controller.end(running->first);
    lanes_.erase(running);
  }
  void finish_resizes() {
    for (const auto& [job, lanes] : lanes_) told_.controller.resized(job);
  }
  void apply() {
    for (const auto& change : told_.controller.decide()) {
      EXPECT_EQ(change.before, lanes_.at(change.job));
      EXPECT_GT(change.lanes, 0) << "who has started goes on";
      lanes_[change.job] = change.lanes;
      served_.insert(change.job);
    }
    int sum = 0;
    for (const auto& [job, lanes] : lanes_) sum += lanes;
    EXPECT_LE(sum, std::max(num_devices_, static_cast<int>(lanes_.size())));
    EXPECT_TRUE(sum > 0 || lanes_.empty()) << "all wait, devices idle";
  }

  std::mt19937 random_;
  int num_devices_;
  Told told_;
  std::size_t num_jobs_ = 0;
  std::map<JobId, int> lanes_;  ///< of jobs that have not ended
  std::set<JobId> served_;
};

TEST(LaneController, StarvesNoJob) {
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
