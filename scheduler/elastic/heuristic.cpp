#include "scheduler/elastic/heuristic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "core/base/config_check.h"
#include "core/base/nearest.h"

namespace spillway {
namespace {

/// A rule about sizes.
class Climb : public Heuristic {
 public:
  Advice decide(const Observed& observed) const final { return {next_size(observed), {}, name()}; }

 protected:
  /// True if the next measured size is worth its lanes.
  virtual bool worth_it(const Observed& observed, int from, int to) const = 0;

 private:
  int next_size(const Observed& observed) const {
    const auto& sizes = observed.sizes;
    assert(!sizes.empty());
    const auto is_measured = [&](int lanes) {
      return observed.speed.num_observed(lanes) >= kStepsToMeasure;
    };
    if (std::ranges::find(sizes, observed.lanes) == sizes.end()) return size_below(observed);
    if (!is_measured(observed.lanes)) return observed.lanes;
    const auto lowest = std::ranges::find_if(sizes, is_measured);
    auto top = lowest;
    for (auto next = top;;) {
      next = std::find_if(next + 1, sizes.end(), is_measured);
      if (next == sizes.end() || !worth_it(observed, *top, *next)) break;
      top = next;
    }
    if (top + 1 != sizes.end() && !is_measured(*(top + 1))) return *(top + 1);
    if (top == lowest && top != sizes.begin()) return *(top - 1);
    return *top;
  }

  /// After the sizes have changed: the largest size up to the present one, else the smallest.
  static int size_below(const Observed& observed) {
    const auto above = std::ranges::upper_bound(observed.sizes, observed.lanes);
    return above == observed.sizes.begin() ? *above : *(above - 1);
  }
};

class ScalingEfficiency final : public Climb {
 public:
  explicit ScalingEfficiency(double threshold) : threshold_(threshold) {}
  std::string_view name() const override { return to_string(RuleKind::throughput); }

 private:
  bool worth_it(const Observed& observed, int from, int to) const override {
    const double slow = observed.speed.speed(from), fast = observed.speed.speed(to);
    return (fast - slow) / (to - from) > threshold_ * slow / from;
  }

  double threshold_;
};

struct Worth {
  double value, loss, every_hours, price_per_device_hour;
  bool in_steps;

  double utility(double hours) const {
    const double times = hours / every_hours;
    return std::max(0.0, value - loss * (in_steps ? std::floor(times) : times));
  }
};

class UtilityAgainstCost final : public Climb {
 public:
  explicit UtilityAgainstCost(const Worth& worth) : worth_(worth) {}
  std::string_view name() const override {
    return to_string(worth_.in_steps ? RuleKind::stepped : RuleKind::linear);
  }

 private:
  bool worth_it(const Observed& observed, int from, int to) const override {
    return net(observed, to) > net(observed, from);
  }
  double net(const Observed& observed, int lanes) const {
    const double hours_left = observed.examples_left / observed.speed.speed(lanes) / 3600;
    return worth_.utility(observed.elapsed_s / 3600 + hours_left) -
           lanes * hours_left * worth_.price_per_device_hour;
  }

  Worth worth_;
};

class Straggler final : public Heuristic {
 public:
  explicit Straggler(double share) : share_(share) {}
  std::string_view name() const override { return to_string(RuleKind::straggler); }
  Advice decide(const Observed& observed) const override {
    Advice advice;
    const double least = share_ * median_speed(observed.devices);
    for (const auto& device : observed.devices) {
      if (device.examples_per_s < least) advice.avoid.push_back(device.id);
    }
    return advice;
  }

 private:
  static double median_speed(const std::vector<Observed::Device>& devices) {
    if (devices.empty()) return 0;
    std::vector<double> speeds;
    for (const auto& device : devices) speeds.push_back(device.examples_per_s);
    std::ranges::sort(speeds);
    const std::size_t half = speeds.size() / 2;
    return speeds.size() % 2 == 1 ? speeds[half] : (speeds[half - 1] + speeds[half]) / 2;
  }

  double share_;
};

struct RuleParam {
  std::string name;
  double standard;
  double above;  ///< what it must be greater than; NaN: must be at least 0
  double most = std::numeric_limits<double>::infinity();
};

using RuleParams = std::vector<RuleParam>;

const RuleParams& params_of(RuleKind kind) {
  const double at_least_0 = std::numeric_limits<double>::quiet_NaN();
  static const RuleParams worth{{"value", 1, at_least_0},
                                {"loss", 1, at_least_0},
                                {"every_hours", 1, 0},
                                {"price_per_device_hour", 0, at_least_0}};
  static const RuleParams efficiency{{"threshold", 0.1, at_least_0, 1}};
  static const RuleParams straggler{{"share", 0.8, 0, 1}};
  if (kind == RuleKind::throughput) return efficiency;
  return kind == RuleKind::straggler ? straggler : worth;
}

/// "; did you mean 'x'?", or the list of all names.
std::string hint(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  return near.empty() ? fmt::format("; it has {}", fmt::join(known, ", "))
                      : fmt::format("; did you mean '{}'?", near);
}

void require_range(ConfigCheck& check, const RuleParam& spec, double value) {
  const bool any_from_0 = std::isnan(spec.above);
  const bool large_enough = any_from_0 ? value >= 0 : value > spec.above;
  std::string range = any_from_0 ? "at least 0" : fmt::format("above {:g}", spec.above);
  if (std::isfinite(spec.most)) range += fmt::format(" and at most {:g}", spec.most);
  check.require(large_enough && value <= spec.most && std::isfinite(value), spec.name,
                fmt::format("is {:g}, must be {}", value, range));
}

}  // namespace

std::shared_ptr<const Heuristic> make_heuristic(RuleKind kind, const HeuristicParams& params,
                                                const std::string& field) {
  ConfigCheck check(field + ".");
  std::vector<std::string> known;
  for (const RuleParam& spec : params_of(kind)) known.push_back(spec.name);
  for (const auto& [key, value] : params) {
    check.require(std::ranges::find(known, key) != known.end(), key,
                  fmt::format("is no parameter of '{}'{}", to_string(kind), hint(key, known)));
  }
  std::vector<double> values;
  for (const RuleParam& spec : params_of(kind)) {
    const auto given = params.find(spec.name);
    values.push_back(given == params.end() ? spec.standard : given->second);
    require_range(check, spec, values.back());
  }
  check.finish();
  if (kind == RuleKind::throughput) return std::make_shared<ScalingEfficiency>(values[0]);
  if (kind == RuleKind::straggler) return std::make_shared<Straggler>(values[0]);
  return std::make_shared<UtilityAgainstCost>(
      Worth{values[0], values[1], values[2], values[3], kind == RuleKind::stepped});
}

}  // namespace spillway
