#include "scheduler/elastic/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>

#include "spillway/error.h"

namespace spillway {
namespace {

using Lanes = std::vector<int>;
using Places = std::vector<std::size_t>;  // of jobs, in order of priority

Lanes present(std::span<const Contender> jobs) {
  Lanes lanes;
  for (const Contender& job : jobs) lanes.push_back(job.lanes);
  return lanes;
}

Places by_priority(std::span<const Contender> jobs) {
  Places order(jobs.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](std::size_t j) {
    return std::tuple(-jobs[j].priority, jobs[j].arrival_s, jobs[j].job);
  });
  return order;
}

class WholeDemand final : public Allocator {
 public:
  std::string_view name() const override { return to_string(SharingKind::priority); }
  Lanes share(std::span<const Contender> jobs, int num_devices) const override {
    Lanes lanes = present(jobs);
    for (int& running : lanes) running = std::min(running, num_devices);
    int free = num_devices - std::accumulate(lanes.begin(), lanes.end(), 0);
    for (std::size_t j : by_priority(jobs)) {
      if (lanes[j] > 0) continue;
      const int asked = std::min(jobs[j].most_lanes, num_devices);
      if (asked > free) break;
      lanes[j] = asked;
      free -= asked;
    }
    return lanes;
  }
};

class WeightedFair final : public Allocator {
 public:
  std::string_view name() const override { return to_string(SharingKind::wfs); }
  Lanes share(std::span<const Contender> jobs, int num_devices) const override {
    if (std::ranges::any_of(jobs, &Contender::resizing)) return present(jobs);
    const auto room = static_cast<std::size_t>(num_devices);
    const Places order = by_priority(jobs);
    Places admitted;
    for (std::size_t j : order) {
      if (jobs[j].lanes > 0 && admitted.size() < room) admitted.push_back(j);
    }
    Lanes lanes = shares(jobs, admitted, num_devices);
    for (std::size_t j : order) {
      if (jobs[j].lanes > 0) continue;
      if (admitted.size() == room) break;
      Places wider = admitted;
      wider.insert(std::ranges::find_if(
                       wider, [&](std::size_t k) { return jobs[k].priority < jobs[j].priority; }),
                   j);
      const Lanes shared = shares(jobs, wider, num_devices);
      if (shrinks_above(jobs, lanes, shared, jobs[j].priority)) break;
      admitted = wider;
      lanes = shared;
    }
    return lanes;
  }

 private:
  /// True if a running job of higher priority would lose lanes.
  static bool shrinks_above(std::span<const Contender> jobs, const Lanes& before,
                            const Lanes& after, int priority) {
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (jobs[j].lanes == 0 || jobs[j].priority <= priority) continue;
      if (after[j] < before[j]) return true;
    }
    return false;
  }

  static double clamped(const Contender& job, double level) {
    return std::clamp(level * job.priority, 1.0, static_cast<double>(job.most_lanes));
  }

  /// Devices per unit of priority such that all are used or every job has what it asked for.
  static double water_level(std::span<const Contender> jobs, const Places& chosen,
                            int num_devices) {
    double low = 0, high = num_devices;
    for (int i = 0; i < 60; ++i) {
      const double level = (low + high) / 2;
      double sum = 0;
      for (std::size_t j : chosen) sum += clamped(jobs[j], level);
      (sum > num_devices ? high : low) = level;
    }
    return low;
  }

  /// At most one chosen job per device.
  static Lanes shares(std::span<const Contender> jobs, const Places& chosen, int num_devices) {
    Lanes lanes(jobs.size(), 0);
    const double level = water_level(jobs, chosen, num_devices);
    int left = num_devices;
    for (std::size_t j : chosen) {
      const double share = clamped(jobs[j], level) + 1e-9;
      lanes[j] = static_cast<int>(std::bit_floor(static_cast<unsigned>(share)));
      left -= lanes[j];
    }
    for (bool doubled = true; doubled;) {
      doubled = false;
      for (std::size_t j : chosen) {
        if (lanes[j] > left || 2 * lanes[j] > jobs[j].most_lanes) continue;
        left -= lanes[j];
        lanes[j] *= 2;
        doubled = true;
      }
    }
    return lanes;
  }
};

class Fill final : public Allocator {
 public:
  std::string_view name() const override { return to_string(SharingKind::fill); }
  Lanes share(std::span<const Contender> jobs, int num_devices) const override {
    Lanes now = present(jobs), best = least(jobs, num_devices);
    const bool as_many =
        std::accumulate(now.begin(), now.end(), 0) == std::accumulate(best.begin(), best.end(), 0);
    if (!as_many || std::ranges::count(now, 0) > 0) return best;
    return time_left(jobs, now) <= kTolerance * time_left(jobs, best) ? now : best;
  }

 private:
  static constexpr double kTolerance = 1.05;

  struct Growth {
    double gain = 0;  ///< of a lane
    int more = 0;
    std::size_t place = 0;
    /// Ties go to the smaller growth, then to the first job.
    bool operator<(const Growth& other) const {
      return std::tuple(gain, other.more, other.place) < std::tuple(other.gain, more, place);
    }
  };

  /// The remaining time of a job alone on `lanes` devices, times its priority.
  static double time_left(const Contender& job, int lanes) {
    return job.priority * job.remaining_s * job.speed.speed(1) / job.speed.speed(lanes);
  }
  static double time_left(std::span<const Contender> jobs, const Lanes& lanes) {
    double sum = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) sum += time_left(jobs[j], lanes[j]);
    return sum;
  }

  /// Tries several lanes at once: one alone may gain nothing if groups do not divide evenly.
  static Growth best_growth(const Contender& job, std::size_t place, int lanes, int most) {
    Growth best;
    for (int more = 1; lanes + more <= most; ++more) {
      const double saved = time_left(job, lanes) - time_left(job, lanes + more);
      best = std::max(best, {saved / more, more, place});
    }
    return best;
  }

  static Lanes least(std::span<const Contender> jobs, int num_devices) {
    Lanes lanes(jobs.size(), 1);
    int left = num_devices - static_cast<int>(jobs.size());
    while (left > 0) {
      Growth best;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        const int most = std::min({jobs[j].most_lanes, num_devices, lanes[j] + left});
        best = std::max(best, best_growth(jobs[j], j, lanes[j], most));
      }
      if (best.gain <= 0) break;
      lanes[best.place] += best.more;
      left -= best.more;
    }
    return lanes;
  }
};

}  // namespace

std::shared_ptr<const Allocator> make_allocator(SharingKind kind) {
  switch (kind) {
    case SharingKind::none:
      return nullptr;
    case SharingKind::priority:
      return std::make_shared<WholeDemand>();
    case SharingKind::wfs:
      return std::make_shared<WeightedFair>();
    case SharingKind::fill:
      return std::make_shared<Fill>();
  }
  return nullptr;
}

std::shared_ptr<const Allocator> make_allocator(std::string_view name) {
  return make_allocator(value_named<SharingKind>(name).value_or(SharingKind::none));
}

}  // namespace spillway
