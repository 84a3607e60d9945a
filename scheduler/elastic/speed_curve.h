#pragma once

#include <map>
#include <optional>

namespace spillway {

inline constexpr int kStepsToMeasure = 10;

/// How fast one job is on how many lanes: what was measured, and elsewhere a power of the number
/// of lanes through the sizes nearest to it. All that was measured is kept. A value; lanes count
/// from 1.
class SpeedCurve {
 public:
  /// `exponent` is believed until two sizes are measured: 1 is a job that scales perfectly.
  explicit SpeedCurve(double exponent = 1) : exponent_(exponent) {}

  /// Of one step. `examples_per_s` above 0.
  void observe(int lanes, double examples_per_s);
  /// Steps observed on so many lanes.
  int num_observed(int lanes) const;
  /// Mean of the first kStepsToMeasure observations, so noise does not move it for ever. Once an
  /// average in which each new observation has a weight of a tenth is off by more than a tenth, the
  /// job has changed, and this is that average. Nothing where nothing was observed.
  std::optional<double> measured(int lanes) const;
  /// Examples per second, as measured() where it knows; without any measurement, a lane does one.
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
