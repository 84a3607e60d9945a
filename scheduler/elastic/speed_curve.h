#pragma once

#include <map>
#include <optional>

namespace spillway {

inline constexpr int kStepsToMeasure = 10;

/// The speed of one job by number of lanes, from 1: measured; or else predicted, and corrected by
/// the ratio of measured to predicted speed on the nearest measured sizes; without predictions, a
/// power of the number of lanes. A value.
class SpeedCurve {
 public:
  /// `exponent` is used where nothing is predicted, until two sizes are measured; 1: perfect
  /// scaling.
  explicit SpeedCurve(double exponent = 1) : exponent_(exponent) {}

  /// Predicts the speed on `lanes` lanes, and on more up to the next size that has a prediction.
  /// `examples_per_s` is above 0.
  void predict(int lanes, double examples_per_s);
  /// Records one step; `examples_per_s` is above 0.
  void observe(int lanes, double examples_per_s);
  /// Number of steps observed on `lanes` lanes.
  int num_observed(int lanes) const;
  /// The mean of the first kStepsToMeasure observations, so that later noise does not move it. If a
  /// moving average (weight 0.1) deviates by more than 10 %, the job has changed, and that average
  /// replaces the value. Nothing if nothing was observed.
  std::optional<double> measured(int lanes) const;
  /// Examples per second; one per lane without any prediction or measurement.
  double speed(int lanes) const;

 private:
  struct Point {
    double examples_per_s = 0, recent = 0;
    int times = 0;
  };
  using Place = std::map<int, Point>::const_iterator;
  static double exponent_between(Place low, Place high);
  double predicted(int lanes) const;
  double carried(Place from, int lanes) const;
  double extrapolated(int lanes) const;
  bool last_lane_is_useless(int lanes) const;

  std::map<int, double> predictions_;  // by lanes
  std::map<int, Point> points_;        // those that were measured, by lanes
  double exponent_;
};

}  // namespace spillway
