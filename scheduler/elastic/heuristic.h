#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/elastic/speed_curve.h"
#include "spillway/choices.h"
#include "spillway/ids.h"

namespace spillway {

/// The observations of a job's autoscaler.
struct Observed {
  SpeedCurve speed{};
  std::vector<int> sizes;  ///< numbers of lanes that it may have, ascending; not empty
  int lanes = 1;           ///< current number
  double elapsed_s = 0;    ///< since it was submitted
  double examples_left = 0;
  struct Device {
    DeviceId id;
    double examples_per_s = 0;  ///< EWMA, see Autoscaler::observe_device
  };
  std::vector<Device> devices;  ///< devices that work for it
};

struct Advice {
  std::optional<int> lanes;     ///< for the next step; nothing: no opinion
  std::vector<DeviceId> avoid;  ///< devices that slow the job down
  std::string_view rule = {};   ///< rule that chose the number of lanes; empty: none
};

/// Decides how many lanes a job gets for its next step; pure.
class Heuristic {
 public:
  virtual ~Heuristic() = default;
  virtual std::string_view name() const = 0;
  virtual Advice decide(const Observed& observed) const = 0;
};

using HeuristicParams = std::map<std::string, double>;

/// The rules. Those about sizes climb: from the smallest measured size, they go up as long as the
/// next measured size is worth it. From there they try the next unmeasured size above, or below if
/// no smaller one is measured. If none is left, the job stays there. So each size is tried once,
/// and a step that was not worth it is reversed. A size counts as measured after kStepsToMeasure
/// steps; until then the job stays. Source: Or et al., Resource elasticity in distributed deep
/// learning.
///   throughput  worth it while s = (dR / dk) / (R / k) > threshold (0.1), R the speed on k lanes
///   linear      worth it while utility grows by more than cost; utility = value (1), less `loss`
///   stepped     (1) for every `every_hours` (1) until the job ends, never below 0: in proportion,
///               or for whole ones; cost = lanes * hours left * price_per_device_hour (0)
///   straggler   no opinion on lanes; avoids devices slower than `share` (0.8) of the median
/// Throws ConfigError for an unknown parameter, with the nearest known one, and for one out of
/// range. Its field starts with `field`: "autoscale.threshold".
std::shared_ptr<const Heuristic> make_heuristic(RuleKind kind, const HeuristicParams& params = {},
                                                const std::string& field = "autoscale");

}  // namespace spillway
