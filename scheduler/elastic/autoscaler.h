#pragma once

#include <boost/container/flat_map.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler/elastic/heuristic.h"

namespace spillway {

/// Numbers of lanes that differ in what the largest lane holds, up to `most`: with 8 groups 1, 2,
/// 3, 4, 8, because on 5 lanes one still has two groups, as on 4.
std::vector<int> useful_lanes(int groups, int most);

/// Keeps what one job was seen to do on how many lanes, and asks its rules after every step. Pure:
/// the same observations give the same decisions, under a real or a virtual clock. Every point is
/// kept, also those of sizes that are not allowed for a while.
class Autoscaler {
 public:
  /// `sizes`: see Observed::sizes. The job has `lanes` lanes.
  Autoscaler(std::vector<std::shared_ptr<const Heuristic>> rules, std::vector<int> sizes,
             int lanes);

  /// A step of the job has ended after `step_s` seconds. The first one on another number of lanes
  /// than the step before does not count: it pays for the change.
  void observe_step(int lanes, double examples, double step_s);
  /// What a device did of a step. Kept as EWMA: a new value has a weight of a tenth.
  void observe_device(DeviceId device, double examples_per_s);
  /// The device no longer works for the job.
  void forget_device(DeviceId device) { device_speeds_.erase(device); }
  void set_sizes(std::vector<int> sizes) { observed_.sizes = std::move(sizes); }

  /// Of all rules: the fewest lanes, else those that it has; every device that any of them avoids.
  Advice decide(double elapsed_s, double examples_left) const;
  const SpeedCurve& speed() const { return observed_.speed; }

 private:
  std::vector<std::shared_ptr<const Heuristic>> rules_;
  Observed observed_;
  boost::container::flat_map<DeviceId, double> device_speeds_;
};

}  // namespace spillway
