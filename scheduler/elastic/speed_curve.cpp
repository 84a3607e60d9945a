#include "scheduler/elastic/speed_curve.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>

namespace spillway {
namespace {

constexpr double kNewestWeight = 0.1, kTolerance = 0.1;

}  // namespace

void SpeedCurve::predict(int lanes, double examples_per_s) {
  assert(lanes >= 1 && examples_per_s > 0);
  predictions_[lanes] = examples_per_s;
}

void SpeedCurve::observe(int lanes, double examples_per_s) {
  assert(lanes >= 1 && examples_per_s > 0);
  Point& point = points_[lanes];
  const double weight = std::max(kNewestWeight, 1.0 / ++point.times);
  point.recent += weight * (examples_per_s - point.recent);
  const bool changed = std::abs(point.recent - point.examples_per_s) > kTolerance * point.recent;
  if (point.times <= kStepsToMeasure || changed) point.examples_per_s = point.recent;
}

int SpeedCurve::num_observed(int lanes) const {
  const auto found = points_.find(lanes);
  return found == points_.end() ? 0 : found->second.times;
}

std::optional<double> SpeedCurve::measured(int lanes) const {
  const auto found = points_.find(lanes);
  if (found == points_.end()) return std::nullopt;
  return found->second.examples_per_s;
}

double SpeedCurve::exponent_between(Place low, Place high) {
  return std::log(high->second.examples_per_s / low->second.examples_per_s) /
         std::log(static_cast<double>(high->first) / low->first);
}

double SpeedCurve::predicted(int lanes) const {
  if (predictions_.empty()) return std::pow(lanes, exponent_);
  const auto above = predictions_.upper_bound(lanes);
  if (above != predictions_.begin() && above != predictions_.end()) return std::prev(above)->second;
  const auto& [size, speed] = above == predictions_.begin() ? *above : *std::prev(above);
  return speed * std::pow(static_cast<double>(lanes) / size, exponent_);
}

/// The measured speed of another size, as the prediction says how it changes from there.
double SpeedCurve::carried(Place from, int lanes) const {
  return from->second.examples_per_s * (predicted(lanes) / predicted(from->first));
}

/// Above or below all measured sizes, it neither falls nor scales better than lanes.
double SpeedCurve::extrapolated(int lanes) const {
  const bool is_below = lanes < points_.begin()->first;
  const Place low = is_below ? points_.begin() : std::prev(points_.end(), 2);
  const Place high = std::next(low), nearest = is_below ? low : high;
  const double exponent = std::clamp(exponent_between(low, high), 0.0, 1.0);
  return nearest->second.examples_per_s *
         std::pow(static_cast<double>(lanes) / nearest->first, exponent);
}

/// Whether one lane less is predicted to be as fast.
bool SpeedCurve::last_lane_is_useless(int lanes) const {
  return !predictions_.empty() && lanes > 1 && predicted(lanes) == predicted(lanes - 1);
}

double SpeedCurve::speed(int lanes) const {
  while (!points_.contains(lanes) && last_lane_is_useless(lanes)) --lanes;
  if (points_.empty()) return predicted(lanes);
  if (const auto known = measured(lanes)) return *known;
  const auto high = points_.lower_bound(lanes);
  const bool is_outside = high == points_.begin() || high == points_.end();
  const bool is_predicted = !predictions_.empty() && lanes <= predictions_.rbegin()->first;
  if (is_outside && !is_predicted && points_.size() > 1) return extrapolated(lanes);
  if (high == points_.begin()) return carried(high, lanes);
  const auto low = std::prev(high);
  if (high == points_.end()) return carried(low, lanes);
  // Between them, the ratio of measured to predicted speed is a power of the number of lanes.
  const double share = std::log(static_cast<double>(lanes) / low->first) /
                       std::log(static_cast<double>(high->first) / low->first);
  const double from_low = carried(low, lanes);
  return from_low * std::pow(carried(high, lanes) / from_low, share);
}

}  // namespace spillway
