#include <algorithm>
#include <utility>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/session/session_impl.h"

namespace spillway {
namespace {

void require_lanes(const SessionTrial& trial, int lanes) {
  if (lanes >= 1 && lanes <= trial.most_lanes) return;
  throw ConfigError("train.lanes", 0,
                    "is " + std::to_string(lanes) + ", must be 1 to " +
                        std::to_string(trial.most_lanes) +
                        "; train.max_lanes, at most train.reduction_groups, says for how many the "
                        "trial reserves host memory");
}

void require_home(const SessionTrial& trial, const PlannedTrial& planned) {
  const Bytes needed = planned.plan->layout.home_bytes, reserved = trial.planned.summary.home_bytes;
  if (needed <= reserved) return;
  throw ConfigError("train.lanes", 0,
                    "is " + std::to_string(planned.summary.lanes) +
                        ", for which the devices that there are now need " + format_bytes(needed) +
                        " of host memory, and " + format_bytes(reserved) + " are reserved");
}

/// What costs are measured for once.
std::string kind_of(const Device& device) {
  std::string kind = device.exact_kind();
  if (device.slowdown() != 1) kind += " slowed " + std::to_string(device.slowdown());
  return kind;
}

int num_lanes(const JobPlan& plan) { return static_cast<int>(plan.lanes.size()); }

}  // namespace

std::map<std::string, std::vector<LayerTimes>> Session::Impl::measure_kinds(const Model& model) {
  Pilot::Kinds kinds;
  {
    const std::lock_guard lock(mutex);
    if (config.estimate) return {};
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (devices[d].state != DeviceList::State::present) continue;
      kinds.emplace(kind_of(*devices[d].device), devices[d].device);
    }
  }
  if (kinds.size() == 1) return {};
  return pilot.measure_on(kinds, model);
}

/// Of the kind of device that the profile is of: measured beside the others, if there is one.
std::vector<LayerTimes> Session::Impl::profiled_times(const SessionTrial& trial) {
  const auto measured = trial.times.find("cpu");
  return measured == trial.times.end() ? times_of(trial.profile, 1) : measured->second;
}

PlanDevice Session::Impl::plan_device(const SessionTrial& trial, std::size_t number) const {
  const DeviceList::Entry& entry = devices[number];
  const auto measured = trial.times.find(kind_of(*entry.device));
  return {.id = DeviceId(number),
          .name = entry.device->name(),
          .budget = entry.budget,
          .split = entry.device->split(),
          .link_bytes_per_s = static_cast<double>(entry.link_bytes_per_s),
          .layers = measured == trial.times.end()
                        ? times_of(trial.profile, entry.device->slowdown())
                        : measured->second};
}

/// Those that are there and not avoided.
std::vector<PlanDevice> Session::Impl::plan_devices(const SessionTrial& trial,
                                                    const std::vector<DeviceId>& avoided) const {
  std::vector<PlanDevice> present;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (devices[d].state != DeviceList::State::present) continue;
    if (std::ranges::find(avoided, DeviceId(d)) != avoided.end()) continue;
    present.push_back(plan_device(trial, d));
  }
  return present;
}

PlannedTrial Session::Impl::plan_for(const SessionTrial& trial, int lanes,
                                     const std::vector<DeviceId>& avoided) const {
  TrialConfig with_lanes = trial.config;
  if (lanes != with_lanes.train.lanes) with_lanes.train.lane_groups.clear();
  with_lanes.train.lanes = lanes;
  return plan_trial(with_lanes, trial.model->spec, trial.profile, plan_devices(trial, avoided),
                    config.host_memory, config.double_buffer, avoided, trial.first_step);
}

/// What is possible for some number of lanes, at its most.
Bytes Session::Impl::home_for_all_lanes(const SessionTrial& trial) const {
  Bytes home_bytes = trial.planned.plan->layout.home_bytes;
  for (int lanes = 1; lanes <= trial.most_lanes; ++lanes) {
    if (lanes == trial.config.train.lanes) continue;
    try {
      home_bytes = std::max(home_bytes, plan_for(trial, lanes).plan->layout.home_bytes);
    } catch (const DoesNotFit&) {
    }
  }
  return home_bytes;
}

void Session::Impl::change_plan(JobId id, std::shared_ptr<const JobPlan> plan) {
  trials[id.index()]->plan = plan;
  if (shell) shell->resize(id, std::move(plan));
}

/// Null where there are not devices enough for it, or no host memory.
std::shared_ptr<const JobPlan> Session::Impl::try_plan(const SessionTrial& trial, int lanes,
                                                       const std::vector<DeviceId>& avoided) const {
  try {
    PlannedTrial planned = plan_for(trial, lanes, avoided);
    if (planned.usable_devices < lanes) return nullptr;
    require_home(trial, planned);
    return std::move(planned.plan);
  } catch (const Error&) {
    return nullptr;
  }
}

/// Whether the present plan is the one for so many lanes.
bool Session::Impl::stands(const SessionTrial& trial, int lanes) const {
  const auto usable = plan_devices(trial, trial.avoided);
  const auto fits = [&](const PlanDevice& d) { return d.budget >= trial.plan->needed_budget; };
  return lanes == num_lanes(*trial.plan) && trial.plan->avoided == trial.avoided &&
         std::ranges::count_if(usable, fits) >= lanes && equally_fast(usable);
}

/// Gives the trial as many lanes as it has asked for, or as can be. False where that is none.
bool Session::Impl::fit(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  for (;; trial.avoided.clear()) {
    int lanes = std::min(trial.lanes_asked, static_cast<int>(devices.budgets().size()));
    for (; lanes > 0; --lanes) {
      if (stands(trial, lanes)) return true;
      auto plan = try_plan(trial, lanes, trial.avoided);
      if (!plan) continue;
      change_plan(id, std::move(plan));
      return true;
    }
    if (trial.avoided.empty()) return false;
  }
}

/// The devices have changed.
void Session::Impl::refit(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  if (trial.ended()) return;
  trial.stranded = !fit(id);
  if (trial.stranded && shell && !config.wait_for_devices && !devices.any_joining()) {
    return shell->fail(id, "no device is left that can run it; it needs one of at least " +
                               format_bytes(trial.planned.summary.smallest_budget_bytes));
  }
  show_state(id);
}

void Session::Impl::refit_all() {
  for (std::size_t t = 0; t < trials.size(); ++t) refit(JobId(t));
  note_devices();
}

/// Devices that a trial may come to later are ready by then.
Bytes Session::Impl::touched_at_start() const {
  Bytes touched = 0;
  for (const auto& trial : trials) {
    if (trial->ended() || trial->most_lanes <= num_lanes(*trial->plan)) continue;
    touched = std::max(touched, trial->plan->needed_budget);
  }
  return touched;
}

void Session::Impl::join(DeviceList::Entry& entry) {
  Bytes touched = 0;
  for (const auto& trial : trials) {
    if (!trial->ended()) touched = std::max(touched, trial->plan->needed_budget);
  }
  shell->add_device(*entry.device, touched);
}

void Session::Impl::rejoin_if_shrunk(DeviceId id) {
  const DeviceList::Entry& left = devices[id.index()];
  const Bytes budget = left.device->budget();
  if (budget < left.budget && budget >= kPage) join(devices.add_again(id.index()));
}

void Session::Impl::on_device_joined(DeviceId id) {
  const std::lock_guard lock(mutex);
  DeviceList::Entry& entry = devices[id.index()];
  entry.state = DeviceList::State::present;
  add_event(id, SessionEvent::Kind::joined, "");
  if (entry.remove_when_joined) {
    entry.state = DeviceList::State::leaving;
    shell->remove_device(id, "it was removed");
  }
  refit_all();
}

void Session::Impl::on_device_left(DeviceId id, bool lost, const std::string& why) {
  const std::lock_guard lock(mutex);
  using State = DeviceList::State;
  const bool was_removed = std::exchange(devices[id.index()].state, State::gone) == State::leaving;
  add_event(id, lost ? SessionEvent::Kind::lost : SessionEvent::Kind::left, why);
  controller->on_device_left(id);
  if (!lost && !was_removed) rejoin_if_shrunk(id);
  refit_all();
}

void Session::resize(JobId id, int lanes) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  if (id.index() >= impl.trials.size()) {
    throw Error("there is no trial " + std::to_string(id.value) + "; there are " +
                std::to_string(impl.trials.size()));
  }
  SessionTrial& trial = *impl.trials[id.index()];
  if (trial.ended()) return;
  require_lanes(trial, lanes);
  PlannedTrial planned = impl.plan_for(trial, lanes);
  require_devices(planned, lanes);
  require_home(trial, planned);
  trial.lanes_fixed = true;
  trial.lanes_asked = lanes;
  trial.avoided.clear();
  if (impl.controller && impl.controller->is_admitted(id)) {
    impl.controller->fix(id, lanes);
    impl.decide_if_due();
  } else {
    impl.change_plan(id, std::move(planned.plan));
  }
}

int Session::add_device(const DeviceConfig& device) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  using State = DeviceList::State;
  auto& entry = impl.devices.add(device, impl.shell ? State::joining : State::present);
  try {
    if (impl.shell) impl.join(entry);
  } catch (...) {
    impl.devices.remove_last();
    throw;
  }
  impl.config.devices.push_back(device);
  return static_cast<int>(impl.devices.size()) - 1;
}

void Session::remove_device(int device) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  DeviceList::Entry& entry = impl.devices.at(device);
  if (entry.state == DeviceList::State::joining) {
    entry.remove_when_joined = true;
    return;
  }
  const char* const why = "it was removed";
  entry.state = impl.shell ? DeviceList::State::leaving : DeviceList::State::gone;
  impl.refit_all();
  if (impl.shell) return impl.shell->remove_device(DeviceId(device), why);
  impl.add_event(DeviceId(device), SessionEvent::Kind::left, why);
}

}  // namespace spillway
