#include "scheduler/elastic/heuristic.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"

namespace spillway {
namespace {

/// Measurements: (lanes, examples per second).
using Points = std::vector<std::pair<int, double>>;

Observed observed(int lanes, const Points& points, std::vector<int> sizes = {1, 2, 3, 4, 5}) {
  Observed all{.sizes = std::move(sizes), .lanes = lanes};
  for (const auto& [size, speed] : points) {
    for (int i = 0; i < kStepsToMeasure; ++i) all.speed.observe(size, speed);
  }
  return all;
}

int next(const Observed& state, RuleKind rule = RuleKind::throughput,
         const HeuristicParams& params = {}) {
  return make_heuristic(rule, params)->decide(state).lanes.value();
}

TEST(Throughput, StaysUntilTheSizeIsMeasured) {
  Observed state = observed(2, {});
  EXPECT_EQ(next(state), 2);
  for (int i = 1; i < kStepsToMeasure; ++i) state.speed.observe(2, 10);
  EXPECT_EQ(next(state), 2);
  state.speed.observe(2, 10);
  EXPECT_EQ(next(state), 3);
}

TEST(Throughput, GrowsWhileGainsExceedTheThreshold) {
  // s = (R - 100) / (100 / 2): 0.12 and 0.08.
  EXPECT_EQ(next(observed(3, {{2, 100}, {3, 106}})), 4);
  EXPECT_EQ(next(observed(3, {{2, 100}, {3, 104}})), 1) << "walks back and looks below 2";
  EXPECT_EQ(next(observed(3, {{2, 100}, {3, 106}}), RuleKind::throughput, {{"threshold", 0.2}}), 1);
  EXPECT_EQ(next(observed(3, {{1, 60}, {2, 100}, {3, 104}})), 2) << "walks back";
  EXPECT_EQ(next(observed(5, {{1, 10}, {3, 30}, {5, 31}})), 4) << "tries what lies between";
}

TEST(Throughput, DividesGainsByTheLanesOfAChange) {
  // (R - 100) / 4 / (100 / 4) is 0.5 and 0.08.
  EXPECT_EQ(next(observed(8, {{3, 80}, {4, 100}, {8, 150}}, {3, 4, 8})), 8);
  EXPECT_EQ(next(observed(8, {{3, 80}, {4, 100}, {8, 108}}, {3, 4, 8})), 4);
}

TEST(Throughput, StaysBeforeASizeMeasuredAsUseless) {
  EXPECT_EQ(next(observed(2, {{1, 60}, {2, 100}, {3, 104}})), 2);
}

TEST(Throughput, UsesAllMeasuredPoints) {
  const Points points{{1, 60}, {2, 110}, {3, 150}, {4, 152}};
  for (int lanes = 1; lanes <= 4; ++lanes) EXPECT_EQ(next(observed(lanes, points)), 3) << lanes;
}

TEST(Throughput, ShrinksFromABadStart) {
  EXPECT_EQ(next(observed(5, {{5, 100}})), 4);
  EXPECT_EQ(next(observed(4, {{5, 100}, {4, 101}})), 3);
  EXPECT_EQ(next(observed(3, {{5, 100}, {4, 101}, {3, 60}})), 4) << "and back up";
  EXPECT_EQ(next(observed(1, {{5, 100}, {4, 101}, {3, 102}, {2, 103}, {1, 104}})), 1);
}

TEST(Throughput, StopsAtADip) {
  EXPECT_EQ(next(observed(3, {{1, 50}, {2, 90}, {3, 70}, {4, 180}})), 2)
      << "what lies behind the dip is not believed to be worth the way";
}

TEST(Throughput, ChoosesOnlyAllowedSizes) {
  EXPECT_EQ(next(observed(5, {{5, 100}}, {1, 2, 3})), 3);
  EXPECT_EQ(next(observed(1, {{1, 100}}, {2, 3})), 2);
  EXPECT_EQ(next(observed(3, {{3, 100}}, {3})), 3);
}

/// Twice as fast on twice as many lanes; one hour on one lane.
Observed scales_perfectly(int lanes) {
  Observed state = observed(lanes, {{1, 1}, {2, 2}, {4, 4}}, {1, 2, 4});
  state.examples_left = 3600;
  return state;
}

TEST(Linear, GrowsWhileTimeIsWorthMoreThanDevices) {
  EXPECT_EQ(next(scales_perfectly(1), RuleKind::linear, {{"price_per_device_hour", 100}}), 4)
      << "the same device hours on any number of lanes cost nothing more";
  Observed state = observed(2, {{1, 1}, {2, 1.5}, {4, 2}}, {1, 2, 4});
  state.examples_left = 3600;
  // Hours: 1, 2/3, 1/2; device hours: 1, 4/3, 2. From 1 to 2 lanes saves a third of an hour for a
  // third of a device hour; from 2 to 4 a sixth for two thirds.
  const auto at_price = [&](double price) {
    return next(state, RuleKind::linear, {{"value", 10}, {"price_per_device_hour", price}});
  };
  EXPECT_EQ(at_price(0), 4);
  EXPECT_EQ(at_price(0.2), 4);
  EXPECT_EQ(at_price(0.3), 2);
  EXPECT_EQ(at_price(0.9), 2);
  EXPECT_EQ(at_price(1.1), 1);
}

TEST(Linear, BoundsUtilityByZero) {
  Observed state = observed(1, {{1, 1}, {2, 1.5}}, {1, 2});
  state.examples_left = 3600;
  const HeuristicParams params{{"value", 2}, {"price_per_device_hour", 0.5}};
  EXPECT_EQ(next(state, RuleKind::linear, params), 2);
  state.elapsed_s = 5 * 3600;
  EXPECT_EQ(next(state, RuleKind::linear, params), 1) << "too late to be worth anything";
}

TEST(Stepped, GrowsOnlyToMeetADeadline) {
  Observed state = observed(1, {{1, 1}, {2, 1.5}, {4, 2}}, {1, 2, 4});
  state.examples_left = 3600;
  const auto with_deadline = [&](double hours) {
    return next(
        state, RuleKind::stepped,
        {{"value", 1}, {"every_hours", hours}, {"loss", 1}, {"price_per_device_hour", 0.1}});
  };
  EXPECT_EQ(with_deadline(2), 1) << "one lane is in time";
  EXPECT_EQ(with_deadline(0.9), 2);
  EXPECT_EQ(with_deadline(0.1), 1) << "none is";
}

TEST(Stepped, CountsEveryDeadline) {
  Observed state = observed(1, {{1, 1}, {2, 1.5}, {4, 2}}, {1, 2, 4});
  state.examples_left = 3600;
  state.elapsed_s = 0.1 * 3600;  // ends after 1.1, 0.77, 0.6 hours
  EXPECT_EQ(next(state, RuleKind::stepped, {{"value", 10}, {"every_hours", 0.35}}), 4)
      << "3, 2, 1 steps";
}

std::vector<DeviceId> avoided(const std::vector<double>& speeds,
                              const HeuristicParams& params = {}) {
  Observed state = observed(1, {});
  for (std::size_t d = 0; d < speeds.size(); ++d) state.devices.push_back({DeviceId(d), speeds[d]});
  const Advice advice = make_heuristic(RuleKind::straggler, params)->decide(state);
  EXPECT_FALSE(advice.lanes) << "no opinion on lanes";
  return advice.avoid;
}

TEST(Straggler, IsSlowerThanFourFifthsOfTheMedian) {
  using Devices = std::vector<DeviceId>;
  EXPECT_EQ(avoided({100, 79, 100, 101}), Devices{DeviceId(1)});
  EXPECT_EQ(avoided({100, 81, 100, 101}), Devices{});
  EXPECT_EQ(avoided({100, 81, 100, 101}, {{"share", 0.9}}), Devices{DeviceId(1)});
  EXPECT_EQ(avoided({100, 40, 30, 100, 100}), (Devices{DeviceId(1), DeviceId(2)}));
  EXPECT_EQ(avoided({100, 1000, 1000, 100, 100}), Devices{}) << "fast ones make no stragglers";
  EXPECT_EQ(avoided({1}), Devices{});
  EXPECT_EQ(avoided({}), Devices{});
}

struct Wrong {
  RuleKind kind;
  HeuristicParams params;
  std::string message;
};

TEST(Heuristic, RefusesWrongParameters) {
  for (const Wrong& wrong : std::vector<Wrong>{
           {RuleKind::throughput,
            {{"treshold", 1}},
            "autoscale.treshold: is no parameter of 'throughput'; did you mean 'threshold'?"},
           {RuleKind::straggler,
            {{"price_per_device_hour", 1}},
            "autoscale.price_per_device_hour: is no parameter of 'straggler'; it has share"},
           {RuleKind::throughput,
            {{"threshold", -0.1}},
            "autoscale.threshold: is -0.1, must be at least 0 and at most 1"},
           {RuleKind::straggler,
            {{"share", 0}},
            "autoscale.share: is 0, must be above 0 and at most 1"},
           {RuleKind::linear, {{"every_hours", 0}}, "autoscale.every_hours: is 0, must be above 0"},
           {RuleKind::stepped, {{"value", -1}}, "autoscale.value: is -1, must be at least 0"}}) {
    try {
      make_heuristic(wrong.kind, wrong.params);
      ADD_FAILURE() << wrong.message;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.field + ": " + error.problem, wrong.message);
    }
  }
}

TEST(Heuristic, HasTheNameOfItsRule) {
  for (const char* name : kNames<RuleKind>)
    EXPECT_EQ(make_heuristic(value_named<RuleKind>(name).value())->name(), name);
}

}  // namespace
}  // namespace spillway
