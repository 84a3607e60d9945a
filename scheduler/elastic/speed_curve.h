#pragma once

#include <map>
#include <optional>

namespace spillway {

inline constexpr int kStepsToMeasure = 10;

/// The speed of one job by number of lanes, from 1: measured, or interpolated as a power of the
/// number of lanes between the nearest measured sizes. A value.
class SpeedCurve {
 public:
  /// `exponent` is used until two sizes are measured; 1: perfect scaling.
  explicit SpeedCurve(double exponent = 1) : exponent_(exponent) {}

  /// Records one step; `examples_per_s` is above 0.
  void observe(int lanes, double examples_per_s);
  /// Number of steps observed on `lanes` lanes.
  int num_observed(int lanes) const;
  /// The mean of the first kStepsToMeasure observations, so that later noise does not move it. If a
  /// moving average (weight 0.1) deviates by more than 10 %, the job has changed, and that average
  /// replaces the value. Nothing if nothing was observed.
  std::optional<double> measured(int lanes) const;
  /// Examples per second; one per lane without any measurement.
  double speed(int lanes) const;

 private:
  struct Point {
    double examples_per_s = 0, recent = 0;
    int times = 0;
  };
  using Place = std::map<int, Point>::const_iterator;
  double exponent_between(Place low, Place high) const;

  std::map<int, Point> points_;  // by lanes
  double exponent_;
};

}  // namespace spillway
