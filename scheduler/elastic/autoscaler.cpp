#include "scheduler/elastic/autoscaler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace spillway {
namespace {

constexpr double kAverageWeight = 0.1;

}  // namespace

std::vector<int> useful_lanes(int groups, int most) {
  std::vector<int> sizes;
  int largest = groups + 1;
  for (int lanes = 1; lanes <= std::min(groups, most); ++lanes) {
    const int now = (groups + lanes - 1) / lanes;
    if (now < largest) sizes.push_back(lanes);
    largest = now;
  }
  return sizes;
}

std::vector<int> sizes_up_to(int most, std::vector<int> sizes) {
  std::erase_if(sizes, [&](int lanes) { return lanes > most; });
  return sizes;
}

SpeedCurve predicted_speed(const std::vector<int>& sizes, int most,
                           const std::function<std::optional<double>(int lanes)>& step_s) {
  SpeedCurve speed;
  for (const int lanes : sizes) {
    const auto priced_s = step_s(lanes);
    if (!priced_s) return speed;
    speed.predict(lanes, 1 / *priced_s);
  }
  speed.predict(most, speed.speed(sizes.back()));
  return speed;
}

Autoscaler::Autoscaler(std::vector<std::shared_ptr<const Heuristic>> rules, std::vector<int> sizes,
                       int lanes)
    : rules_(std::move(rules)) {
  assert(!sizes.empty());
  observed_.sizes = std::move(sizes);
  observed_.lanes = lanes;
}

void Autoscaler::observe_step(int lanes, double examples, double step_s) {
  const bool same = std::exchange(observed_.lanes, lanes) == lanes;
  if (same && step_s > 0) observed_.speed.observe(lanes, examples / step_s);
}

void Autoscaler::observe_device(DeviceId device, double examples_per_s) {
  const auto [place, is_new] = device_speeds_.try_emplace(device, examples_per_s);
  if (!is_new) place->second += kAverageWeight * (examples_per_s - place->second);
}

Advice Autoscaler::decide(double elapsed_s, double examples_left) const {
  Observed observed = observed_;
  observed.elapsed_s = elapsed_s;
  observed.examples_left = examples_left;
  for (const auto& [device, speed] : device_speeds_) observed.devices.push_back({device, speed});
  Advice all;
  for (const auto& rule : rules_) {
    const Advice one = rule->decide(observed);
    if (one.lanes && (!all.lanes || *one.lanes < *all.lanes)) {
      all.lanes = one.lanes;
      all.rule = rule->name();
    }
    all.avoid.insert(all.avoid.end(), one.avoid.begin(), one.avoid.end());
  }
  if (!all.lanes) all.lanes = observed.lanes;
  std::ranges::sort(all.avoid);
  const auto repeated = std::ranges::unique(all.avoid);
  all.avoid.erase(repeated.begin(), repeated.end());
  return all;
}

}  // namespace spillway
