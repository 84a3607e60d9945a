#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/elastic/speed_curve.h"
#include "spillway/ids.h"

namespace spillway {

/// What a job's autoscaler knows.
struct Observed {
  SpeedCurve speed{};
  std::vector<int> sizes;  ///< numbers of lanes that it may have, ascending; not empty
  int lanes = 1;           ///< that it has
  double elapsed_s = 0;    ///< since it was submitted
  double examples_left = 0;
  struct Device {
    DeviceId id;
    double examples_per_s = 0;  ///< EWMA, see Autoscaler::observe_device
  };
  std::vector<Device> devices;  ///< that work for it
};

struct Advice {
  std::optional<int> lanes;     ///< to go on with; nothing: no opinion
  std::vector<DeviceId> avoid;  ///< devices that hold the job up
  std::string_view rule = {};   ///< whose number of lanes this is; empty: of none
};

/// Decides how many lanes a job goes on with; pure.
class Heuristic {
 public:
  virtual ~Heuristic() = default;
  virtual std::string_view name() const = 0;
  virtual Advice decide(const Observed& observed) const = 0;
};

using HeuristicParams = std::map<std::string, double>;

/// The rules. Those with a size climb: from the smallest size measured up, as long as going on to
/// the next one measured is worth it; from there a step to the next size that is not measured, up,
/// or down where nothing smaller is; none left: there the job stays. So each size is tried once,
/// whatever was measured is used wherever the job stands, and a step that was not worth it is
/// walked back. A size counts as measured after kStepsToMeasure steps; until then the job stays.
/// Source: Or et al., Resource elasticity in distributed deep learning.
///   throughput  worth it while s = (dR / dk) / (R / k) > threshold (0.1), R the speed on k lanes
///   linear      worth it while utility grows by more than cost; utility = value (1), less `loss`
///   stepped     (1) for every `every_hours` (1) until the job ends, never below 0: in proportion,
///               or for whole ones; cost = lanes * hours left * price_per_device_hour (0)
///   straggler   no opinion on lanes; avoids devices slower than `share` (0.8) of the median
/// Throws ConfigError for an unknown name or parameter, naming the nearest, and for a parameter out
/// of range; `field` is what it blames: "autoscale" makes "autoscale.threshold".
std::shared_ptr<const Heuristic> make_heuristic(const std::string& name,
                                                const HeuristicParams& params = {},
                                                const std::string& field = "autoscale");
std::span<const std::string> heuristic_names();

}  // namespace spillway
