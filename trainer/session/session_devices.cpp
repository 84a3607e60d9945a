#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/session/session_impl.h"

namespace spillway {

std::map<std::string, std::vector<LayerTimes>> Session::Impl::measure_kinds(const Model& model) {
  Pilot::Kinds kinds;
  {
    const MutexLock lock(mutex);
    if (config.estimate) return {};
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (devices[d].state != DeviceList::State::present) continue;
      kinds.emplace(kind_of(*devices[d].device), devices[d].device);
    }
  }
  if (kinds.size() == 1) return {};
  return pilot.measure_on(kinds, model);
}

void Session::Impl::change_plan(JobId id, std::shared_ptr<const JobPlan> plan) {
  trial(id).plan = plan;
  if (is_in_run(id)) shell->resize(id, std::move(plan));
}

/// Plans the trial again, because the devices have changed.
void Session::Impl::refit(JobId id) {
  SessionTrial& refitted = trial(id);
  if (refitted.ended()) return;
  const std::optional<Planner::Fit> fit = planner.fit(refitted);
  refitted.lanes.avoided = fit ? fit->avoided : std::vector<DeviceId>();
  if (fit && fit->plan != refitted.plan) change_plan(id, fit->plan);
  if (refitted.lifecycle.is_live()) {
    refitted.lifecycle.enter(fit ? live_phase(id) : TrialPhase::stranded);
  }
  if (!fit && is_in_run(id) && !config.wait_for_devices && !devices.any_joining()) {
    return shell->fail(id,
                       fmt::format("no device is left that can run it; it needs one of at least {}",
                                   format_bytes(refitted.planned.summary.smallest_budget_bytes)));
  }
  show_phase(id);
}

void Session::Impl::refit_all() {
  for (std::size_t t = 0; t < trials.size(); ++t) refit(JobId(t));
  renew_if_interrupted();
  note_devices();
}

/// Bytes to touch, so that devices that a trial uses only later are ready in time.
Bytes Session::Impl::touched_at_start() const {
  Bytes touched = 0;
  for (const auto& trial : trials) {
    if (trial->ended() || trial->lanes.max <= trial->plan->strategy.tracks) continue;
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
  const MutexLock lock(mutex);
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
  const MutexLock lock(mutex);
  using State = DeviceList::State;
  const bool was_removed = std::exchange(devices[id.index()].state, State::gone) == State::leaving;
  add_event(id, lost ? SessionEvent::Kind::lost : SessionEvent::Kind::left, why);
  controller->on_device_left(id);
  if (!lost && !was_removed) rejoin_if_shrunk(id);
  refit_all();
}

void Session::resize(JobId id, int lanes) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  if (id.index() >= impl.trials.size()) {
    throw Error(
        fmt::format("there is no trial {}; the session has {}", id.value, impl.trials.size()));
  }
  SessionTrial& trial = impl.trial(id);
  if (trial.ended()) return;
  PlannedTrial planned = impl.planner.plan_resize(trial, lanes);
  trial.lanes.set_by_user = true;
  trial.lanes.requested = lanes;
  trial.lanes.avoided.clear();
  if (impl.controller && impl.controller->is_admitted(id)) {
    impl.controller->fix(id, lanes);
    impl.decide_if_due();
  } else {
    impl.change_plan(id, std::move(planned.plan));
  }
}

int Session::add_device(const DeviceConfig& device) {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
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
  const MutexLock lock(impl.mutex);
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
