#include "trainer/session/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "scheduler/elastic/autoscaler.h"
#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

void require_lanes(const SessionTrial& trial, int lanes) {
  if (lanes >= 1 && lanes <= trial.lanes.max) return;
  throw ConfigError("train.data_parallel", 0,
                    fmt::format("is {}, must be from 1 to {}; train.max_data_parallel (at most "
                                "train.reduction_groups) sets the maximum",
                                lanes, trial.lanes.max));
}

void require_home(const SessionTrial& trial, const PlannedTrial& planned) {
  const Bytes needed = planned.plan->layout.home_bytes, reserved = trial.planned.summary.home_bytes;
  if (needed <= reserved) return;
  throw ConfigError(
      "train.data_parallel", 0,
      fmt::format("is {}, which needs {} of host memory on the present devices; the "
                  "trial has reserved {}",
                  planned.summary.lanes, format_bytes(needed), format_bytes(reserved)));
}

/// Whether the number lies between two with strategies, and the user has not asked for it.
bool skips(const SessionTrial& trial, int lanes) {
  const bool is_asked_for = lanes == trial.config.train.data_parallel ||
                            (trial.lanes.set_by_user && lanes == trial.lanes.requested);
  return !is_asked_for && trial.config.train.skips(lanes);
}

}  // namespace

std::string kind_of(const Device& device) {
  std::string kind = device.exact_kind();
  if (device.slowdown() != 1) kind += fmt::format(" slowed {:f}", device.slowdown());
  return kind;
}

std::vector<LayerTimes> profiled_times(const SessionTrial& trial) {
  const auto measured = trial.times.find("cpu");
  return measured == trial.times.end() ? times_of(trial.profile, 1) : measured->second;
}

PlanDevice Planner::device(const SessionTrial& trial, std::size_t number) const {
  const DeviceList::Entry& entry = devices_[number];
  const auto measured = trial.times.find(kind_of(*entry.device));
  return {.id = DeviceId(number),
          .name = entry.device->name(),
          .budget = entry.budget,
          .split = entry.device->split(),
          .link_bytes_per_s = static_cast<double>(entry.link_bytes_per_s),
          .links = &links_,
          .layers = measured == trial.times.end()
                        ? times_of(trial.profile, entry.device->slowdown())
                        : measured->second};
}

std::vector<PlanDevice> Planner::present_devices(const SessionTrial& trial,
                                                 const Devices& avoided) const {
  std::vector<PlanDevice> present;
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (devices_[d].state != DeviceList::State::present) continue;
    if (std::ranges::find(avoided, DeviceId(d)) != avoided.end()) continue;
    present.push_back(device(trial, d));
  }
  return present;
}

PlannedTrial Planner::plan_for(const HostTeam& team, const SessionTrial& trial, int lanes,
                               const Devices& avoided) const {
  TrialConfig with_lanes = trial.config;
  if (lanes != with_lanes.train.data_parallel) with_lanes.train.lane_groups.clear();
  with_lanes.train.data_parallel = lanes;
  return plan_trial(with_lanes, trial.model->spec, trial.profile, present_devices(trial, avoided),
                    config_.host_memory, config_.double_buffer, avoided, trial.first_step, team);
}

/// A plan that the reserved home has room for, if there is one.
PlannedTrial Planner::plan_within_home(const SessionTrial& trial, int lanes,
                                       const Devices& avoided) const {
  PlannedTrial planned = plan(trial, lanes, avoided);
  const Bytes reserved = trial.planned.summary.home_bytes;
  if (!planned.summary.shards_stay || planned.plan->layout.home_bytes <= reserved) return planned;
  HostTeam whole = trial.team;  // shards for exchanges need more
  whole.assume_fast_network();
  return plan_for(whole, trial, lanes, avoided);
}

PlannedTrial Planner::plan_resize(const SessionTrial& trial, int lanes) const {
  require_lanes(trial, lanes);
  PlannedTrial planned = plan_within_home(trial, lanes, {});
  require_devices(planned, lanes);
  require_home(trial, planned);
  return planned;
}

std::shared_ptr<const JobPlan> Planner::plan_of(const SessionTrial& trial,
                                                const TrialConfig& config) const {
  try {
    PlannedTrial planned =
        plan_trial(config, trial.model->spec, trial.profile, present_devices(trial, {}),
                   config_.host_memory, config_.double_buffer);
    const bool has_devices = planned.usable_devices >= planned.plan->strategy.tracks;
    return has_devices ? std::move(planned.plan) : nullptr;
  } catch (const DoesNotFit&) {
    return nullptr;
  }
}

JobShape Planner::shape_of(const SessionTrial& trial, const TrialConfig& config) const {
  return spillway::shape_of(config, present_devices(trial, {}));
}

/// Null if there are too few devices, or too little host memory.
std::shared_ptr<const JobPlan> Planner::try_plan(const SessionTrial& trial, int lanes,
                                                 const Devices& avoided) const {
  try {
    PlannedTrial planned = plan_within_home(trial, lanes, avoided);
    if (planned.usable_devices < lanes) return nullptr;
    require_home(trial, planned);
    return std::move(planned.plan);
  } catch (const Error&) {
    return nullptr;
  }
}

std::shared_ptr<const JobPlan> Planner::best_plan(const SessionTrial& trial, int lanes,
                                                  const Devices& avoided) const {
  for (; lanes > 0; --lanes) {
    if (skips(trial, lanes)) continue;
    if (auto plan = try_plan(trial, lanes, avoided)) return plan;
  }
  return nullptr;
}

/// True if the present plan is still the best one for this number of lanes.
bool Planner::is_current(const SessionTrial& trial, int lanes, const Devices& avoided) const {
  const auto usable = present_devices(trial, avoided);
  const auto fits = [&](const PlanDevice& d) { return d.budget >= trial.plan->needed_budget; };
  const bool has_lanes = trial.config.train.strategy || lanes == trial.plan->strategy.tracks;
  return has_lanes && trial.plan->avoided == avoided &&
         std::ranges::count_if(usable, fits) >= lanes && equally_fast(usable);
}

std::optional<Planner::Fit> Planner::fit(const SessionTrial& trial) const {
  for (Devices avoided = trial.lanes.avoided;; avoided.clear()) {
    int lanes = std::min(trial.lanes.requested, static_cast<int>(devices_.budgets().size()));
    for (; lanes > 0; --lanes) {
      if (skips(trial, lanes)) continue;
      if (is_current(trial, lanes, avoided)) return Fit{trial.plan, avoided};
      if (auto plan = try_plan(trial, lanes, avoided)) return Fit{std::move(plan), avoided};
    }
    if (avoided.empty()) return std::nullopt;
  }
}

std::vector<int> Planner::sizes(const SessionTrial& trial) const {
  const TrainConfig& train = trial.config.train;
  const std::vector<int> useful = useful_lanes(groups_of_host(train, trial.team), trial.lanes.max);
  std::set<int> sizes(useful.begin(), useful.end());
  for (const auto& [devices, strategy] : train.strategies) {
    if (devices <= trial.lanes.max) sizes.insert(devices);
  }
  std::erase_if(sizes, [&](int lanes) { return train.skips(lanes); });
  return {sizes.begin(), sizes.end()};
}

int Planner::lanes_possible(const SessionTrial& trial) const {
  const auto can_run = [&](Bytes budget) {
    return budget >= trial.planned.summary.smallest_budget_bytes;
  };
  const auto devices_for_it = std::ranges::count_if(devices_.budgets(), can_run);
  return std::clamp(static_cast<int>(devices_for_it), 1, trial.lanes.max);
}

/// One for each number of hosts and each place of this one among them: groups follow from these.
std::vector<HostTeam> Planner::possible_teams(const SessionTrial& trial) const {
  // Where state is sharded, a loss ends the session, and others go on with other homes.
  if (trial.is_evaluation || config_.hosts.state != HostStateKind::replicated) return {trial.team};
  const int own = config_.hosts.number;
  std::vector<HostTeam> teams;
  for (int before = 0; before <= own; ++before) {
    for (int behind = 0; own + behind < config_.hosts.size; ++behind) {
      HostTeam team = trial.team;
      team.hosts.clear();
      for (int host = own - before; host <= own + behind; ++host) team.hosts.insert(host);
      teams.push_back(std::move(team));
    }
  }
  return teams;
}

Bytes Planner::home_for_all_plans(const SessionTrial& trial) const {
  Bytes home_bytes = trial.planned.plan->layout.home_bytes;
  for (const HostTeam& team : possible_teams(trial)) {
    for (int lanes = 1; lanes <= trial.lanes.max; ++lanes) {
      if (team == trial.team && lanes == trial.config.train.data_parallel) continue;
      try {
        const PlannedTrial planned = plan_for(team, trial, lanes, {});
        home_bytes = std::max(home_bytes, planned.plan->layout.home_bytes);
      } catch (const DoesNotFit&) {
      }
    }
  }
  return home_bytes;
}

}  // namespace spillway
