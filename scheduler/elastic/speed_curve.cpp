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
  const auto above = predictions_.upper_bound(lanes);
  if (above == predictions_.begin()) return std::pow(lanes, exponent_);
  const auto& [size, speed] = *std::prev(above);
  if (above != predictions_.end()) return speed;
  return speed * std::pow(static_cast<double>(lanes) / size, exponent_);
}

/// Measured over predicted speed on `lanes` lanes, which were not measured: a power of the number
/// of lanes between measured sizes, and that of the nearest one beyond them.
double SpeedCurve::correction(int lanes) const {
  const auto of = [this](Place place) {
    return place->second.examples_per_s / predicted(place->first);
  };
  const auto high = points_.lower_bound(lanes);
  if (high == points_.begin()) return of(high);
  const auto low = std::prev(high);
  if (high == points_.end()) return of(low);
  const double share = std::log(static_cast<double>(lanes) / low->first) /
                       std::log(static_cast<double>(high->first) / low->first);
  return of(low) * std::pow(of(high) / of(low), share);
}

double SpeedCurve::speed(int lanes) const {
  if (points_.empty()) return predicted(lanes);
  if (const auto known = measured(lanes)) return *known;
  const bool is_inside = lanes > points_.begin()->first && lanes < points_.rbegin()->first;
  if (is_inside || !predictions_.empty() || points_.size() == 1) {
    return predicted(lanes) * correction(lanes);
  }
  // It neither falls nor scales better than lanes.
  const bool is_below = lanes < points_.begin()->first;
  const Place low = is_below ? points_.begin() : std::prev(points_.end(), 2);
  const Place high = std::next(low), nearest = is_below ? low : high;
  const double exponent = std::clamp(exponent_between(low, high), 0.0, 1.0);
  return nearest->second.examples_per_s *
         std::pow(static_cast<double>(lanes) / nearest->first, exponent);
}

}  // namespace spillway
