#include "scheduler/elastic/speed_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace spillway {
namespace {

TEST(SpeedCurve, IsAPowerOfLanesWithoutMeasurements) {
  EXPECT_DOUBLE_EQ(SpeedCurve().speed(5), 5);
  EXPECT_DOUBLE_EQ(SpeedCurve(0.5).speed(4), 2);
  EXPECT_FALSE(SpeedCurve().measured(1));
  EXPECT_EQ(SpeedCurve().num_observed(1), 0);
}

TEST(SpeedCurve, IsScaledByOneMeasurement) {
  SpeedCurve curve(0.5);
  curve.observe(4, 100);
  EXPECT_DOUBLE_EQ(curve.speed(4), 100);
  EXPECT_DOUBLE_EQ(curve.speed(1), 50);
  EXPECT_NEAR(curve.speed(8), 100 * std::sqrt(2.0), 1e-9);
}

TEST(SpeedCurve, PrefersMeasurementsToTheExponent) {
  SpeedCurve curve(0);
  curve.observe(1, 10);
  curve.observe(4, 40);
  EXPECT_NEAR(curve.speed(2), 20, 1e-9) << "between them, on a straight line of logs";
  EXPECT_NEAR(curve.speed(8), 80, 1e-9) << "beyond them, on the line of the last two";
  curve.observe(8, 30);
  EXPECT_DOUBLE_EQ(curve.speed(8), 30);
  EXPECT_DOUBLE_EQ(curve.speed(16), 30) << "a fall is not carried on";
  EXPECT_DOUBLE_EQ(*curve.measured(4), 40) << "all points are kept";
}

TEST(SpeedCurve, ScalesAtMostLinearlyBelowMeasurements) {
  SpeedCurve curve;
  curve.observe(2, 10);
  curve.observe(4, 80);
  EXPECT_NEAR(curve.speed(1), 5, 1e-9);
}

TEST(SpeedCurve, PredictsUntilItIsMeasured) {
  SpeedCurve curve;
  curve.predict(1, 10);
  curve.predict(2, 16);
  curve.predict(4, 20);
  EXPECT_DOUBLE_EQ(curve.speed(1), 10);
  EXPECT_DOUBLE_EQ(curve.speed(2), 16);
  EXPECT_DOUBLE_EQ(curve.speed(3), 16) << "a third lane is of no use";
  EXPECT_DOUBLE_EQ(curve.speed(8), 40) << "nothing is known of more than four";
  EXPECT_FALSE(curve.measured(2));
  curve.observe(2, 8);
  EXPECT_DOUBLE_EQ(curve.speed(2), 8);
  EXPECT_DOUBLE_EQ(curve.speed(1), 5) << "half as fast as predicted";
  EXPECT_DOUBLE_EQ(curve.speed(4), 10);
}

TEST(SpeedCurve, CorrectsPredictionsBetweenMeasurements) {
  SpeedCurve curve;
  for (const auto& [lanes, speed] : std::map<int, double>{{1, 10}, {2, 16}, {4, 20}, {8, 24}}) {
    curve.predict(lanes, speed);
  }
  curve.observe(1, 10);
  curve.observe(4, 5);
  EXPECT_DOUBLE_EQ(curve.speed(2), 8)
      << "half as fast as predicted, between the same and a quarter";
  EXPECT_DOUBLE_EQ(curve.speed(8), 6) << "a quarter";
  EXPECT_DOUBLE_EQ(curve.speed(16), 5) << "not predicted, and four were slower than one";
}

TEST(SpeedCurve, GivesAUselessLaneNoSpeed) {
  SpeedCurve curve;
  curve.predict(1, 10);
  curve.predict(4, 37);
  curve.predict(7, 37);
  curve.predict(8, 70);
  for (const double measured : {0.3, 0.7, 1.1}) {
    curve.observe(4, measured * 37);
    EXPECT_EQ(curve.speed(5), curve.speed(4));
    EXPECT_EQ(curve.speed(7), curve.speed(4)) << "to the last bit";
    EXPECT_GT(curve.speed(8), curve.speed(7));
  }
  curve.observe(8, 70);
  EXPECT_EQ(curve.speed(6), curve.speed(4)) << "also between measured sizes";
}

TEST(SpeedCurve, IgnoresNoise) {
  SpeedCurve curve;
  for (int i = 0; i < kStepsToMeasure / 2; ++i) {
    curve.observe(2, 90);
    curve.observe(2, 110);
  }
  EXPECT_NEAR(*curve.measured(2), 100, 1e-9);
  EXPECT_EQ(curve.num_observed(2), kStepsToMeasure);
  for (int i = 0; i < 200; ++i) curve.observe(2, i % 3 == 0 ? 112 : 97);
  EXPECT_NEAR(*curve.measured(2), 100, 1e-9);
}

TEST(SpeedCurve, FollowsAChangedJob) {
  SpeedCurve curve;
  for (int i = 0; i < 50; ++i) curve.observe(2, 100);
  curve.observe(2, 60);
  EXPECT_DOUBLE_EQ(*curve.measured(2), 100) << "one slow step";
  for (int i = 0; i < 50; ++i) curve.observe(2, 50);
  EXPECT_NEAR(*curve.measured(2), 50, 50 * 0.1);
}

}  // namespace
}  // namespace spillway
