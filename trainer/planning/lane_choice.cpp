#include "trainer/planning/lane_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scheduler/elastic/lane_split.h"
#include "scheduler/plan/lower.h"

namespace spillway {
namespace {

std::string seconds_text(double seconds) { return fmt::format("{:.3g} s", seconds); }

/// The parts of a lane's time.
class LaneCosts {
 public:
  LaneCosts(const NeedTable& needs, const Partition& cut, bool double_buffer)
      : needs_(needs), cut_(cut), hides_copies_(double_buffer) {
    const LayerRange edge = cut.shards.front();
    const Bytes first_weights = range_need(needs, edge).weights();
    edge_bytes_ = first_weights;
    for (int l = edge.begin; l < edge.end; ++l) edge_bytes_ += needs.packed_sums[at(l)];
    for (LayerRange shard : cut.shards) {
      const RangeNeed need = range_need(needs, shard);
      has_backward_.push_back(need.has_backward());
      again_bytes_ += (need.has_backward() ? 2 : 1) * need.weights();
    }
    again_bytes_ -= first_weights + range_need(needs, cut.shards.back()).weights();
  }

  LaneCandidate candidate(const PlanDevice& device, int max_groups) const {
    const double rate = copy_rate(device);
    // Nothing hides the load of the first shard's weights and the write back of its sums.
    const double edge_s = static_cast<double>(edge_bytes_) / rate;
    const double copies_s = static_cast<double>(again_bytes_) / rate;
    LaneCandidate made{.fixed_s = edge_s + (hides_copies_ ? 0 : copies_s),
                       .least_s = hides_copies_ ? copies_s : 0,
                       .max_groups = max_groups};
    for (std::size_t i = 0; i < kPilotSizes.size(); ++i) {
      made.points.push_back({kPilotSizes[i], measured_s(device, i)});
    }
    return made;
  }

  /// The host adds the sums of each lane but one.
  double join_s() const {
    double bytes = 0;
    for (Bytes layer : needs_.packed_sums) bytes += static_cast<double>(layer);
    return bytes / needs_.profile.reduce_bytes_per_s;
  }

 private:
  double copy_rate(const PlanDevice& device) const {
    const double memory = needs_.profile.copy_bytes_per_s, link = device.link_bytes_per_s;
    return link > 0 ? std::min(link, memory) : memory;
  }

  double measured_s(const PlanDevice& device, std::size_t size) const {
    double seconds = 0;
    for (std::size_t s = 0; s < cut_.shards.size(); ++s) {
      const bool has_forward = s + 1 < cut_.shards.size();  // before its backward op
      for (int l = cut_.shards[s].begin; l < cut_.shards[s].end; ++l) {
        const LayerTimes& layer = device.layers[at(l)];
        seconds += (has_backward_[s] ? layer.backward_s[size] : 0) +
                   (has_forward ? layer.forward_s[size] : 0);
      }
    }
    return seconds;
  }

  const NeedTable& needs_;
  const Partition& cut_;
  const bool hides_copies_;
  std::vector<bool> has_backward_;  // by shard
  Bytes edge_bytes_ = 0;
  Bytes again_bytes_ = 0;  // weights that load while other layers compute
};

std::string why_not(const SplitProblem& problem, std::size_t number, const PlanDevice& device,
                    Bytes needed_budget, const LaneSplit& chosen) {
  if (device.budget < needed_budget) {
    return fmt::format("{} is not used: it has {}, and the trial needs {} on each device",
                       device.name, format_bytes(device.budget), format_bytes(needed_budget));
  }
  const auto with = split_lanes_with(problem, static_cast<int>(number));
  return fmt::format("{} is not used: with it a step would take about {}, without it {}",
                     device.name, seconds_text(with->step_s), seconds_text(chosen.step_s));
}

}  // namespace

std::vector<LayerTimes> times_of(const Profile& profile, double slowdown) {
  std::vector<LayerTimes> times(profile.layers.size());
  for (std::size_t l = 0; l < times.size(); ++l) {
    for (std::size_t i = 0; i < kPilotSizes.size(); ++i) {
      times[l].forward_s[i] = profile.layers[l].forward_s * slowdown * kPilotSizes[i];
      times[l].backward_s[i] = profile.layers[l].backward_s * slowdown * kPilotSizes[i];
    }
  }
  return times;
}

bool equally_fast(const std::vector<PlanDevice>& devices) {
  return std::ranges::all_of(devices, [&](const PlanDevice& device) {
    return device.layers == devices.front().layers &&
           device.link_bytes_per_s == devices.front().link_bytes_per_s;
  });
}

bool has_equal_devices(const std::vector<PlanDevice>& devices) {
  const auto has_other_memory = [&](const PlanDevice& device) {
    return device.budget != devices.front().budget;
  };
  return equally_fast(devices) && std::ranges::none_of(devices, has_other_memory);
}

bool are_alike(const std::vector<PlanDevice>& devices) {
  if (!has_equal_devices(devices)) return false;
  std::vector<std::size_t> numbers;
  for (const PlanDevice& device : devices) numbers.push_back(device.id.index());
  const LinkTable* links = devices.front().links;
  return !links || links->are_alike(numbers);
}

double slowdown_of(const std::vector<LayerTimes>& layers, const std::vector<LayerTimes>& on_other) {
  const auto backward_s = [](double sum_s, const LayerTimes& layer) {
    return sum_s + layer.backward_s.front();
  };
  return std::accumulate(layers.begin(), layers.end(), 0.0, backward_s) /
         std::accumulate(on_other.begin(), on_other.end(), 0.0, backward_s);
}

std::optional<LaneChoice> choose_lanes(const NeedTable& needs, const Partition& cut,
                                       const JobShape& shape, const LaneLimits& limits,
                                       bool double_buffer, const std::vector<PlanDevice>& devices) {
  const LaneCosts costs(needs, cut, double_buffer);
  SplitProblem problem{.groups = shape.groups,
                       .vns_per_group = shape.virtual_nodes / shape.groups,
                       .max_lanes = limits.lanes,
                       .join_s = costs.join_s()};
  for (const PlanDevice& device : devices) {
    const bool has_room = device.budget >= limits.needed_budget;
    problem.candidates.push_back(costs.candidate(device, has_room ? limits.groups : 0));
  }
  const auto split = split_lanes(problem);
  if (!split) return std::nullopt;
  LaneChoice choice{.least_budget = ~Bytes{0}, .step_s = split->step_s};
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (split->groups[d] == 0) {
      choice.declined.push_back(why_not(problem, d, devices[d], limits.needed_budget, *split));
      continue;
    }
    choice.lane_groups.push_back(split->groups[d]);
    choice.lane_devices.push_back(devices[d].id);
    choice.device_names.push_back(devices[d].name);
    choice.least_budget = std::min(choice.least_budget, devices[d].budget);
  }
  return choice;
}

}  // namespace spillway
