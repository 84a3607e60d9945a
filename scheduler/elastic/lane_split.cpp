#include "scheduler/elastic/lane_split.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr int kNone = -1;

class Splitter {
 public:
  Splitter(const SplitProblem& problem, int required) : problem_(problem), required_(required) {
    for (const LaneCandidate& candidate : problem.candidates) slots_.push_back(slots_of(candidate));
    for (const auto& slots : slots_) times_.insert(times_.end(), slots.begin(), slots.end());
    std::ranges::sort(times_);
  }

  std::optional<LaneSplit> best() const {
    std::optional<LaneSplit> best;
    for (int lanes = 1; lanes <= std::min(problem_.max_lanes, problem_.groups); ++lanes) {
      const auto split = best_of(lanes);
      if (split && (!best || split->step_s < best->step_s)) best = split;
    }
    return best;
  }

 private:
  /// Entry g - 1: the time at which a lane of g groups ends.
  std::vector<double> slots_of(const LaneCandidate& candidate) const {
    std::vector<double> slots;
    for (int g = 1; g <= std::min(candidate.max_groups, problem_.groups); ++g) {
      const double end = candidate.lane_s(g * problem_.vns_per_group);
      slots.push_back(slots.empty() ? end : std::max(end, slots.back()));
    }
    return slots;
  }

  int slots_until(int candidate, double time) const {
    const auto& slots = slots_[at(candidate)];
    return static_cast<int>(std::ranges::upper_bound(slots, time) - slots.begin());
  }

  /// The `lanes` candidates that finish most groups by `time`; nothing if they cannot finish all.
  std::optional<std::vector<int>> enough_by(double time, int lanes) const {
    if (required_ != kNone && slots_until(required_, time) == 0) return std::nullopt;
    std::vector<int> order(slots_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](int c) {
      return c == required_ ? problem_.groups + 1 : slots_until(c, time);
    });
    order.resize(std::min(order.size(), at(lanes)));
    int sum = 0;
    for (int c : order) sum += slots_until(c, time);
    if (sum < problem_.groups) return std::nullopt;
    return order;
  }

  std::optional<LaneSplit> best_of(int lanes) const {
    const auto first = std::ranges::partition_point(
        times_, [&](double time) { return !enough_by(time, lanes).has_value(); });
    if (first == times_.end()) return std::nullopt;
    auto chosen = *enough_by(*first, lanes);
    std::ranges::sort(chosen);
    return spread(chosen);
  }

  /// Gives each group the earliest free slot.
  LaneSplit spread(const std::vector<int>& chosen) const {
    LaneSplit split{.groups = std::vector<int>(slots_.size())};
    const auto take = [&](int candidate) {
      const double end = slots_[at(candidate)][at(split.groups[at(candidate)]++)];
      split.step_s = std::max(split.step_s, end);
    };
    if (required_ != kNone) take(required_);
    for (int left = problem_.groups - split.num_groups(); left > 0; --left) {
      take(least_next(chosen, split.groups));
    }
    split.step_s += problem_.join_s * (split.num_lanes() - 1);
    return split;
  }

  int least_next(const std::vector<int>& chosen, const std::vector<int>& taken) const {
    int least = kNone;
    for (int c : chosen) {
      if (at(taken[at(c)]) == slots_[at(c)].size()) continue;
      if (least == kNone || next(c, taken) < next(least, taken)) least = c;
    }
    return least;
  }
  double next(int candidate, const std::vector<int>& taken) const {
    return slots_[at(candidate)][at(taken[at(candidate)])];
  }

  const SplitProblem& problem_;
  const int required_;  // kNone: no candidate is required
  std::vector<std::vector<double>> slots_;
  std::vector<double> times_;  // of all slots, ascending
};

}  // namespace

double LaneCandidate::lane_s(int virtual_nodes) const {
  return fixed_s + std::max(least_s, compute_s(virtual_nodes));
}

double LaneCandidate::compute_s(int virtual_nodes) const {
  assert(!points.empty());
  if (points.size() == 1) return points[0].seconds * virtual_nodes / points[0].virtual_nodes;
  std::size_t behind = 1;
  while (behind + 1 < points.size() && points[behind].virtual_nodes < virtual_nodes) ++behind;
  const Point &a = points[behind - 1], &b = points[behind];
  const double slope = (b.seconds - a.seconds) / (b.virtual_nodes - a.virtual_nodes);
  return a.seconds + slope * (virtual_nodes - a.virtual_nodes);
}

int LaneSplit::num_groups() const { return std::accumulate(groups.begin(), groups.end(), 0); }

int LaneSplit::num_lanes() const {
  return static_cast<int>(std::ranges::count_if(groups, [](int g) { return g > 0; }));
}

std::optional<LaneSplit> split_lanes(const SplitProblem& problem) {
  return Splitter(problem, kNone).best();
}

std::optional<LaneSplit> split_lanes_with(const SplitProblem& problem, int candidate) {
  return Splitter(problem, candidate).best();
}

}  // namespace spillway
