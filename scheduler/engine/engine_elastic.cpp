#include <algorithm>
#include <cassert>
#include <utility>

#include "scheduler/engine/engine.h"

namespace spillway {

void Engine::resize(JobId id, std::shared_ptr<const JobPlan> plan, std::vector<Action>& out) {
  out_ = &out;
  JobTable& job = table(id);
  assert(plan->layout.home_bytes <= job.home_bytes);
  if (job.phase >= JobPhase::ending) return;
  job.next_plan = plan == job.plan ? nullptr : std::move(plan);
  const bool stuck = job.phase == JobPhase::running && job.tracks_a_device == 0;
  if (job.next_plan && stuck) redo(id);
  schedule();
}

void Engine::pause(JobId id, std::vector<Action>& out) {
  out_ = &out;
  table(id).paused = true;
  schedule();
}

void Engine::resume(JobId id, std::vector<Action>& out) {
  out_ = &out;
  table(id).paused = false;
  settle(id);
  schedule();
}

void Engine::hold(JobId id, Hold hold, std::vector<Action>& out) {
  out_ = &out;
  table(id).hold = hold;
  settle(id);
  schedule();
}

void Engine::suspend(JobId id, bool suspended, std::vector<Action>& out) {
  out_ = &out;
  table(id).suspended = suspended;
  settle(id);
  schedule();
}

void Engine::finish(JobId id, std::vector<Action>& out) {
  out_ = &out;
  table(id).finishes = true;
  table(id).paused = false;
  settle(id);
  schedule();
}

void Engine::interrupt(JobId id, std::vector<Action>& out) {
  out_ = &out;
  interrupt_open(id);
  schedule();
}

void Engine::go_on(JobId id, std::shared_ptr<const JobPlan> plan, bool one_step,
                   std::vector<Action>& out) {
  out_ = &out;
  JobTable& job = table(id);
  assert(plan->layout.home_bytes <= job.home_bytes);
  if (job.phase >= JobPhase::ending) return;
  job.next_plan = std::move(plan);
  job.interrupted = false;
  job.one_step = one_step;
  settle(id);
  schedule();
}

DeviceId Engine::add_device(Bytes budget, std::vector<Action>& out) {
  out_ = &out;
  const DeviceId id(tables_.devices.size());
  tables_.devices.emplace_back().budget = budget;
  memory_.add_device(config_.split.planned(budget));
  placer_.add_device();
  dispatcher_.add_device();
  reconsider();
  schedule();
  return id;
}

void Engine::remove_device(DeviceId id, std::vector<Action>& out) {
  out_ = &out;
  if (table(id).state != DeviceState::usable) return;
  table(id).state = DeviceState::leaving;
  reconsider();
  schedule();
}

void Engine::lose_device(DeviceId id, std::vector<Action>& out) {
  out_ = &out;
  if (table(id).state == DeviceState::gone) return;
  ShortList<JobId> hit;
  for (std::size_t j = 0; j < tables_.jobs.size(); ++j) {
    if (tables_.jobs[j].phase == JobPhase::running && needs(JobId(j), id)) hit.push_back(JobId(j));
  }
  forget_copies(id);
  table(id).state = DeviceState::gone;
  out_->push_back(DeviceLeft{id, true});
  for (JobId job : hit) redo(job);
  reconsider();
  schedule();
}

bool KeptWork::has(const HostOpSpec& op) const {
  switch (op.kind) {
    case HostOpKind::update:
    case HostOpKind::update_part:
      return updates;
    case HostOpKind::load:
      return op.index == 1 ? eval_loads || evaluation : loads;
    case HostOpKind::finish_evaluation:
      return evaluation;
    default:
      return false;
  }
}

/// Starts a new attempt; switches to the pending plan, whose batches have other homes.
void Engine::begin_attempt(JobId id) {
  JobTable& job = table(id);
  const bool redoes = std::exchange(job.redoes, false);
  const bool changes = job.next_plan != nullptr;
  if (redoes) out_->push_back(StepRedone{id, job.step, ++job.attempt});
  if (changes) {
    job.plan = std::exchange(job.next_plan, nullptr);
    job.program = nullptr;  // of the old plan
    job.kept.loads = job.kept.eval_loads = false;
    out_->push_back(PlanChanged{id, job.plan});
  }
}

/// Takes the job's units off the devices. Its actions in flight run to their end.
void Engine::withdraw(JobId id) {
  end_shared_leases(id);
  leave_places(id);
  dispatcher_.rank(tables_, id);
  for (std::size_t d = 0; d < tables_.devices.size(); ++d) {
    DeviceTable& device = tables_.devices[d];
    if (device.current && device.current->job == id) device.current.reset();
    if (device.next && device.next->job == id) device.next.reset();
    device.tried = 0;
    touch(DeviceId(d));
    dispatcher_.note_state(tables_, memory_, DeviceId(d));
  }
}

/// Its units that will not go on give their leases of shared copies back, except while one of their
/// ops is in flight.
void Engine::end_shared_leases(JobId id) {
  JobTable& job = table(id);
  if (!job.program || job.plan->layout.shared.empty()) return;
  const auto computes = [&](ActionId op, int unit) {
    const auto found = in_flight_.find(op);  // not found: it has just ended
    return found != in_flight_.end() && found->second.job == id && found->second.unit == unit;
  };
  for (int u = 0; u < static_cast<int>(job.units.size()); ++u) {
    UnitState& unit = job.units[at(u)];
    if (!unit.reserved || job.is_done(u)) continue;
    if (std::ranges::any_of(table(unit.device).running,
                            [&](ActionId op) { return computes(op, u); }))
      continue;
    unit.reserved = false;
    for (int b : job.program->units[at(u)].weights) {
      if (memory_.shared_number({id, b}) >= 0) memory_.end_lease(*this, unit.device, {id, b});
    }
  }
}

/// Drops the open step and begins it again once none of its actions is in flight, and other hosts
/// that train the job have dropped it, too. Updates and loads start with a program, so they are
/// done by then.
void Engine::redo(JobId id) {
  JobTable& job = table(id);
  if (job.plan->layout.has_peers()) note_interruption(job);
  job.phase = JobPhase::settling;
  job.redoes = true;
  job.kept.updates = true;
  job.kept.loads |= job.kind.train;
  job.kept.eval_loads |= job.kind.evaluate;
  withdraw(id);
  settle(id);
}

void Engine::note_interruption(JobTable& job) {
  job.interrupted = true;
  job.told = job.one_step = false;
}

void Engine::interrupt_open(JobId id) {
  JobTable& job = table(id);
  if (job.phase >= JobPhase::ending) return;
  note_interruption(job);
  if (job.phase == JobPhase::waiting) return tell_interrupted(id);
  if (job.phase == JobPhase::running && job.exchanges_left > 0) return redo(id);
  settle(id);
}

/// Tracks share devices only if there are fewer devices than tracks, and then evenly.
void Engine::share_tracks(JobTable& job) const {
  int devices = 0;
  for (std::size_t d = 0; d < tables_.devices.size(); ++d)
    devices += tables_.can_run(job, DeviceId(d)) ? 1 : 0;
  const auto tracks = static_cast<int>(job.tracks.size());
  job.tracks_a_device = devices == 0 ? 0 : (tracks + devices - 1) / devices;
}

/// Ranks all jobs again after the devices have changed.
void Engine::reconsider() {
  placer_.note_change();
  dispatcher_.note_ready();
  for (std::size_t j = 0; j < tables_.jobs.size(); ++j) {
    if (tables_.jobs[j].phase != JobPhase::running) continue;
    share_tracks(tables_.jobs[j]);
    dispatcher_.rank(tables_, JobId(j));
  }
  for (std::size_t d = 0; d < tables_.devices.size(); ++d) {
    touch(DeviceId(d));
    dispatcher_.note_state(tables_, memory_, DeviceId(d));
  }
}

/// True if the job needs the device to finish its open program.
bool Engine::needs(JobId id, DeviceId device) const {
  const JobTable& job = table(id);
  for (std::size_t u = 0; u < job.units.size(); ++u) {
    const UnitState& unit = job.units[u];
    const bool finished = job.is_done(static_cast<int>(u)) && unit.drains_left == 0;
    if (unit.ops_started > 0 && unit.device == device && !finished) return true;
  }
  const auto comes_from_it = [&](const auto& item) {
    return item.second.job == id && item.second.peer == device;
  };
  return std::ranges::any_of(in_flight_, comes_from_it) || memory_.has_only_copy(*this, device, id);
}

/// Releases a unit for other devices if none of its ops has started.
void Engine::give_back(UnitRef unit) {
  if (state(unit).ops_started > 0) return;
  JobTable& job = table(unit.job);
  state(unit).claimed = state(unit).reserved = false;
  --job.tracks[at(spec(unit).track)].cursor;
  job.unclaimed_s += spec(unit).cost_s;
}

/// Clears the tables of a lost device and frees the tracks bound to it.
void Engine::forget_copies(DeviceId id) {
  DeviceTable& device = table(id);
  memory_.forget(id);
  for (JobTable& job : tables_.jobs) {
    for (TrackState& track : job.tracks) {
      if (track.device == id) track.device = DeviceId();
    }
  }
  for (auto* unit : {&device.next, &device.current}) {
    if (*unit) give_back(**unit);
    unit->reset();
  }
  device.running.clear();
  device.overlap = {};
}

/// True if tracks still have to finish their program on the device.
bool Engine::has_bound_tracks(DeviceId id) const {
  return std::ranges::any_of(tables_.jobs, [&](const JobTable& job) {
    if (job.phase != JobPhase::running || job.plan->roams()) return false;
    return std::ranges::any_of(job.tracks, [&](const TrackState& track) {
      const auto& units =
          job.program->track_units[static_cast<std::size_t>(&track - job.tracks.data())];
      return track.device == id && track.cursor < units.size();
    });
  });
}

/// Empties a leaving device that has no work left.
void Engine::leave_if_empty(DeviceId id) {
  DeviceTable& device = table(id);
  if (device.state != DeviceState::leaving) return;
  if (device.current || device.next || !device.running.empty() || has_bound_tracks(id)) return;
  evict_all(id);
  if (copies(id).used() > 0) return;
  device.state = DeviceState::gone;
  out_->push_back(DeviceLeft{id});
}

}  // namespace spillway
