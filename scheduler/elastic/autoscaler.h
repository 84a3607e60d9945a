#pragma once

#include <boost/container/flat_map.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/elastic/heuristic.h"

namespace spillway {

/// The numbers of lanes up to `most` that make the largest lane smaller: 1, 2, 3, 4, 8 for 8
/// groups, because with 5 lanes one still has two groups, as with 4.
std::vector<int> useful_lanes(int groups, int most);

/// The numbers in `sizes` that are at most `most`.
std::vector<int> sizes_up_to(int most, std::vector<int> sizes);

/// Predicts the speed of a job on 1 to `most` lanes. `sizes`: numbers of lanes from 1 to `most`
/// that may make it faster, ascending. `step_s`: seconds of its step, called for each of them;
/// nothing: the job cannot have so many.
SpeedCurve predicted_speed(const std::vector<int>& sizes, int most,
                           const std::function<std::optional<double>(int lanes)>& step_s);

/// Records the speed of one job by number of lanes and evaluates its rules after every step. Pure:
/// the same observations give the same decisions, under a real or a virtual clock. It keeps every
/// point, even for sizes that are not allowed at the moment.
class Autoscaler {
 public:
  /// `sizes`: see Observed::sizes. The job has `lanes` lanes.
  Autoscaler(std::vector<std::shared_ptr<const Heuristic>> rules, std::vector<int> sizes,
             int lanes);

  /// A step of the job took `step_s` seconds. The first step after a change of lanes is ignored: it
  /// includes the cost of the change.
  void observe_step(int lanes, double examples, double step_s);
  /// A device's speed in a step. Averaged with a weight of 0.1 for new values (EWMA).
  void observe_device(DeviceId device, double examples_per_s);
  /// The device no longer works for the job.
  void forget_device(DeviceId device) { device_speeds_.erase(device); }
  void set_sizes(std::vector<int> sizes) { observed_.sizes = std::move(sizes); }

  /// Combines all rules: the fewest lanes (the present ones if no rule decides), and all devices
  /// that any rule avoids.
  Advice decide(double elapsed_s, double examples_left) const;
  const SpeedCurve& speed() const { return observed_.speed; }

 private:
  std::vector<std::shared_ptr<const Heuristic>> rules_;
  Observed observed_;
  boost::container::flat_map<DeviceId, double> device_speeds_;
};

}  // namespace spillway
