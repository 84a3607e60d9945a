#include "scheduler/elastic/speed_curve.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>

namespace spillway {
namespace {

constexpr double kNewestWeight = 0.1, kTolerance = 0.1;

}  // namespace

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

double SpeedCurve::exponent_between(Place low, Place high) const {
  return std::log(high->second.examples_per_s / low->second.examples_per_s) /
         std::log(static_cast<double>(high->first) / low->first);
}

double SpeedCurve::speed(int lanes) const {
  if (points_.empty()) return std::pow(lanes, exponent_);
  const auto high = points_.lower_bound(lanes);
  if (high != points_.end() && high->first == lanes) return high->second.examples_per_s;
  const bool inside = high != points_.end() && high != points_.begin();
  auto from =
      high == points_.begin() ? high : std::prev(high);  // nearest smaller size, else the smallest
  double exponent = exponent_;
  if (inside) {
    exponent = exponent_between(from, high);
  } else if (points_.size() >
             1) {  // beyond the measured sizes it neither falls nor scales better than lanes
    const auto low = from == points_.begin() ? from : std::prev(from);
    exponent = std::clamp(exponent_between(low, std::next(low)), 0.0, 1.0);
  }
  return from->second.examples_per_s * std::pow(static_cast<double>(lanes) / from->first, exponent);
}

}  // namespace spillway
