#include "scheduler/elastic/autoscaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace spillway {
namespace {

using Speed = std::function<double(int lanes)>;

Autoscaler with(RuleKind rule, std::vector<int> sizes, int lanes,
                const HeuristicParams& params = {}) {
  return Autoscaler({make_heuristic(rule, params)}, std::move(sizes), lanes);
}

/// The numbers of lanes that a job had, step by step, given its speeds. The first step after a
/// change is slow, as in practice.
std::vector<int> lanes_of_run(Autoscaler scaler, int lanes, int steps, const Speed& speed) {
  std::vector<int> path{lanes};
  for (int step = 0; step < steps; ++step) {
    const bool changed = path.size() > 1 && path.back() != path[path.size() - 2];
    scaler.observe_step(lanes, 1, (changed ? 10 : 1) / speed(lanes));
    lanes = scaler.decide(step, 1e9).lanes.value();
    path.push_back(lanes);
  }
  return path;
}

/// The size at which s_k falls to the threshold of 0.1: Amdahl's law, R = 1 / (serial + (1 -
/// serial) / k).
int last_worth_it(double serial, int most) {
  const auto speed = [&](int k) { return 1 / (serial + (1 - serial) / k); };
  int lanes = 1;
  while (lanes < most && speed(lanes + 1) - speed(lanes) > 0.1 * speed(lanes) / lanes) ++lanes;
  return lanes;
}

std::vector<int> up_to(int most) {
  std::vector<int> sizes;
  for (int size = 1; size <= most; ++size) sizes.push_back(size);
  return sizes;
}

TEST(UsefulLanes, ShrinkTheLargestLane) {
  EXPECT_EQ(useful_lanes(8, 8), (std::vector<int>{1, 2, 3, 4, 8}));
  EXPECT_EQ(useful_lanes(8, 5), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(useful_lanes(3, 9), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(useful_lanes(1, 4), (std::vector<int>{1}));
}

TEST(UsefulLanes, AreLimited) {
  EXPECT_EQ(sizes_up_to(4, {1, 2, 3, 8}), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(sizes_up_to(8, {1, 5, 8}), (std::vector<int>{1, 5, 8}));
}

TEST(PredictedSpeed, AsksForUsefulLanesAlone) {
  std::vector<int> asked;
  const auto step_s = [&](int lanes) -> std::optional<double> {
    asked.push_back(lanes);
    return 1.0 / lanes;
  };
  const SpeedCurve curve = predicted_speed(useful_lanes(8, 6), 6, step_s);
  EXPECT_EQ(asked, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(curve.speed(4), 4);
  EXPECT_EQ(curve.speed(6), 4) << "one lane still has two groups";
}

TEST(PredictedSpeed, EndsWhereThereIsNoPlan) {
  const auto step_s = [](int lanes) { return lanes < 3 ? std::optional(1.0) : std::nullopt; };
  const SpeedCurve curve = predicted_speed(useful_lanes(8, 8), 8, step_s);
  EXPECT_EQ(curve.speed(2), 1);
  EXPECT_EQ(curve.speed(4), 2) << "more devices may come";
}

TEST(Autoscaler, FindsTheSameSizeFromAnyStart) {
  for (const double serial : {0.0, 0.3, 0.5, 0.7, 0.95}) {
    const int right = last_worth_it(serial, 16);
    const Speed speed = [&](int k) { return 1 / (serial + (1 - serial) / k); };
    for (int start = 1; start <= 16; start += 3) {
      const auto path =
          lanes_of_run(with(RuleKind::throughput, up_to(16), start), start, 200, speed);
      EXPECT_EQ(path.back(), right) << "serial " << serial << ", from " << start;
    }
  }
  EXPECT_EQ(last_worth_it(0, 16), 16) << "the cases differ";
  EXPECT_GT(last_worth_it(0.5, 16), last_worth_it(0.7, 16));
  EXPECT_GT(last_worth_it(0.7, 16), last_worth_it(0.95, 16));
}

TEST(Autoscaler, TriesEachSizeOnceAndReturns) {
  const Speed peak_at_3 = [](int k) { return k <= 3 ? k : 3.0 / (k - 2); };
  const auto path = lanes_of_run(with(RuleKind::throughput, up_to(8), 1), 1, 60, peak_at_3);
  std::vector<int> sizes{path.front()};
  for (int lanes : path) {
    if (lanes != sizes.back()) sizes.push_back(lanes);
  }
  EXPECT_EQ(sizes, (std::vector<int>{1, 2, 3, 4, 3}));
}

TEST(Autoscaler, IgnoresTheFirstStepAfterAChange) {
  Autoscaler scaler = with(RuleKind::throughput, up_to(4), 1);
  for (int i = 0; i < kStepsToMeasure; ++i) scaler.observe_step(1, 100, 1);
  scaler.observe_step(2, 100, 60);
  EXPECT_EQ(scaler.speed().num_observed(2), 0);
  scaler.observe_step(2, 100, 0.5);
  EXPECT_DOUBLE_EQ(*scaler.speed().measured(2), 200);
}

TEST(Autoscaler, SettlesUnderNoise) {
  const double serial = 0.6;
  const int right = last_worth_it(serial, 12);
  ASSERT_GT(right, 2);
  ASSERT_LT(right, 10);
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> noise(0.97, 1.03);
    const Speed speed = [&](int k) { return noise(random) / (serial + (1 - serial) / k); };
    const auto path = lanes_of_run(with(RuleKind::throughput, up_to(12), 1), 1, 400, speed);
    EXPECT_NEAR(path.back(), right, 2) << seed;
    const std::set<int> late(path.end() - 100, path.end());
    EXPECT_LE(late.size(), 2u) << "seed " << seed << " still wanders";
  }
}

TEST(Autoscaler, FollowsAChangedJob) {
  Autoscaler scaler = with(RuleKind::throughput, up_to(4), 1);
  int lanes = 1;
  const auto run = [&](int steps, const Speed& speed) {
    for (int i = 0; i < steps; ++i) {
      scaler.observe_step(lanes, 1, 1 / speed(lanes));
      lanes = scaler.decide(0, 1e9).lanes.value();
    }
    return lanes;
  };
  EXPECT_EQ(run(40, [](int k) { return k; }), 4);
  EXPECT_LT(run(100, [](int k) { return k == 4 ? 2.0 : k; }), 4)
      << "others have come to its device";
}

TEST(Autoscaler, KeepsMeasurementsOfUnavailableSizes) {
  Autoscaler scaler = with(RuleKind::throughput, up_to(4), 1);
  int lanes = 1;
  const auto step = [&] {
    scaler.observe_step(lanes, 1, 1.0 / std::min(lanes, 3));
    lanes = scaler.decide(0, 1e9).lanes.value();
  };
  for (int i = 0; i < 60; ++i) step();
  ASSERT_EQ(lanes, 3);
  scaler.set_sizes({1, 2});
  step();
  EXPECT_EQ(lanes, 2);
  scaler.set_sizes(up_to(4));
  for (int i = 0; i < 2; ++i) step();
  EXPECT_EQ(lanes, 3) << "at once: 4 is known to be no better";
}

TEST(Autoscaler, TakesTheFewestLanesOfAllRules) {
  Autoscaler scaler({make_heuristic(RuleKind::throughput),
                     make_heuristic(RuleKind::throughput, {{"threshold", 0.9}}),
                     make_heuristic(RuleKind::straggler)},
                    up_to(8), 1);
  int lanes = 1;
  for (int i = 0; i < 60; ++i) {
    scaler.observe_step(lanes, 1, 1 / std::pow(lanes, 0.8));
    lanes = scaler.decide(0, 1e9).lanes.value();
  }
  EXPECT_EQ(lanes, 1);
  EXPECT_EQ(Autoscaler({make_heuristic(RuleKind::straggler)}, up_to(8), 5).decide(0, 1).lanes, 5)
      << "no rule about lanes: as it is";
}

TEST(Autoscaler, DetectsAStragglerByItsAverage) {
  Autoscaler scaler = with(RuleKind::straggler, up_to(3), 3);
  const auto step = [&](double third) {
    for (int d = 0; d < 3; ++d) scaler.observe_device(DeviceId(d), d == 2 ? third : 100);
    return scaler.decide(0, 1).avoid;
  };
  EXPECT_TRUE(step(100).empty());
  EXPECT_TRUE(step(10).empty()) << "one slow step";
  EXPECT_TRUE(step(10).empty()) << "0.9 * 0.9 * 90 + 10 = 82.9";
  EXPECT_EQ(step(10), std::vector<DeviceId>{DeviceId(2)});
  scaler.forget_device(DeviceId(2));
  EXPECT_TRUE(scaler.decide(0, 1).avoid.empty());
}

}  // namespace
}  // namespace spillway
