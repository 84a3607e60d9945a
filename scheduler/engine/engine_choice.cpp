#include <algorithm>
#include <cassert>
#include <utility>

#include "scheduler/engine/engine.h"

namespace spillway {

/// Hands the touched devices, and those that want a unit while there is one, to `handle`. A unit
/// goes to a device that has nothing to do before one that would do it later.
template <typename HasWork, typename Handle>
void Engine::visit(const DeviceSet& idle, DeviceSet& touched, const DeviceSet& wanting,
                   const HasWork& has_work, const Handle& handle) {
  for (const bool idle_ones : {true, false}) {
    for (std::size_t from = 0;;) {
      DeviceId id = touched.next(from);
      if (has_work()) id = std::min(id, wanting.next(from));
      if (!id.valid()) break;
      from = id.index() + 1;
      if (idle.contains(id) != idle_ones) continue;
      handle(id);
      note_state(id);
      touched.set(id, wanting.contains(id) && ready_.any_only_for(id));
    }
  }
}

void Engine::schedule() {
  admit_waiting();
  const DeviceSet idle = idle_;  // as it is before anything starts
  const auto to_claim = [&] { return ready_.any_for_all(); };
  const auto to_claim_or_steal = [&] { return to_claim() || !robbable_.empty(); };
  visit(idle, to_drive_, wants_current_, to_claim_or_steal, [&](DeviceId id) {
    drive(id);
    leave_if_empty(id);
  });
  if (!config_.double_buffer) return;
  visit(idle, to_prefetch_, wants_next_, to_claim, [&](DeviceId id) { prefetch(id); });
}

/// Something changed on the device, or in what it waits for.
void Engine::touch(DeviceId id) {
  to_drive_.set(id, true);
  to_prefetch_.set(id, true);
}

/// The device cannot go on before an action of the job ends, maybe one on another device.
void Engine::watch(JobId job, DeviceId watcher) {
  auto& watchers = table(job).watchers;
  if (std::ranges::find(watchers, watcher) == watchers.end()) watchers.push_back(watcher);
}

/// What others have to know of the device.
void Engine::note_state(DeviceId id) {
  const DeviceTable& device = table(id);
  const bool idle = device.running.empty();
  const bool double_buffer = config_.double_buffer;
  const bool gone = device.state == DeviceState::gone;
  idle_.set(id, idle);
  wants_current_.set(id, !gone && !device.current && !device.next && (double_buffer || idle));
  wants_next_.set(
      id, double_buffer && device.current && !device.next && state(*device.current).reserved);
  robbable_.set(id, may_be_stolen(id));
}

bool Engine::is_done(const JobTable& job, int unit) const {
  return job.units[at(unit)].ops_done == job.program->units[at(unit)].num_ops;
}

/// Not valid: any, as where that device has left.
DeviceId Engine::made_for(const JobTable& job, int lane) const {
  const DeviceId id = job.plan->device_of(lane);
  return id.valid() && can_run(job, id) ? id : DeviceId();
}

/// The device that may claim the lane's next unit now, or an id that is not valid: any device.
/// Nothing: none may.
std::optional<DeviceId> Engine::claimant(const JobTable& job, int lane) const {
  if (job.phase != JobPhase::running) return std::nullopt;
  const auto& units = job.program->lane_units[at(lane)];
  const LaneState& state = job.lanes[at(lane)];
  if (state.cursor == units.size()) return std::nullopt;
  if (job.units[at(units[state.cursor])].waits_for > 0) return std::nullopt;
  if (state.cursor == 0) return made_for(job, lane);
  const int before = units[state.cursor - 1];
  if (is_done(job, before)) return job.lanes.size() == 1 ? made_for(job, lane) : state.device;
  // Its predecessor may still run: the queue of a device keeps the order.
  if (!config_.double_buffer) return std::nullopt;
  const DeviceId runs_on = job.units[at(before)].device;
  if (job.lanes.size() == 1 && table(runs_on).state != DeviceState::usable) return std::nullopt;
  return runs_on;
}

/// Ranks the lane's next unit anew. Called whenever its claimant or candidate may have changed.
void Engine::rank(JobId id, int lane) {
  JobTable& job = table(id);
  LaneState& state = job.lanes[at(lane)];
  if (state.ready) ready_.remove(*state.ready, state.only);
  state.ready.reset();
  const auto only = claimant(job, lane);
  if (!only) return;
  const Candidate candidate{.job = id,
                            .lane = lane,
                            .unit = job.program->lane_units[at(lane)][state.cursor],
                            .remaining_s = remaining_s(job),
                            .step = job.step,
                            .last_served = job.last_served};
  state.ready = ReadyLane{config_.policy->priority(candidate), id, lane};
  state.only = *only;
  ready_.add(*state.ready, state.only);
  if (only->valid()) touch(*only);
}

/// Of lanes that any device may take: whether this one may. The lanes of a job bind to one each,
/// while there are devices enough.
bool Engine::may_take(DeviceId id, const ReadyLane& lane) const {
  const JobTable& job = table(lane.job);
  if (!can_run(job, id)) return false;
  return job.lanes.size() == 1 ||
         std::ranges::count(job.lanes, id, &LaneState::device) < job.lanes_a_device;
}

int Engine::next_unit(const ReadyLane& ready) const {
  const JobTable& job = table(ready.job);
  return job.program->lane_units[at(ready.lane)][job.lanes[at(ready.lane)].cursor];
}

Bytes Engine::resident_bytes(DeviceId id, const ReadyLane& ready) const {
  const JobTable& job = table(ready.job);
  const Program& program = *job.program;
  const UnitSpec& unit = program.units[at(next_unit(ready))];
  Bytes bytes = 0;
  const auto count = [&](const std::vector<int>& buffers) {
    for (int b : buffers) {
      if (memory_.holds(id, {ready.job, b})) bytes += job.plan->layout.buffers[at(b)].bytes;
    }
  };
  count(unit.weights);
  for (int i = 0; i < unit.num_ops; ++i) count(program.ops[at(unit.first_op + i)].inputs);
  return bytes;
}

/// Among equals of `first`, the lane with most resident bytes. Only jobs with copies have any.
ReadyLane Engine::prefer_resident(DeviceId id, const ReadyLane& first) const {
  ReadyLane best = first;
  Bytes most = resident_bytes(id, first);
  for (const auto& [job, bytes_of_job] : copies(id).jobs()) {
    if (bytes_of_job < most) continue;
    for (const LaneState& lane : table(job).lanes) {
      if (!lane.ready || lane.ready->priority != first.priority) continue;
      if (lane.only.valid() ? lane.only != id : !may_take(id, *lane.ready)) continue;
      const Bytes bytes = resident_bytes(id, *lane.ready);
      if (bytes < most || (bytes == most && !(*lane.ready < best))) continue;
      best = *lane.ready;
      most = bytes;
    }
  }
  return best;
}

bool Engine::choose(DeviceId id, std::optional<UnitRef>& slot) {
  DeviceTable& device = table(id);
  if (device.tried == readiness_) return false;
  const auto first = ready_.first(id, [&](const auto& lane) { return may_take(id, lane); });
  if (!first) {
    device.tried = readiness_;
    return false;
  }
  const ReadyLane best = prefer_resident(id, *first);
  slot = UnitRef{best.job, next_unit(best)};
  claim(id, *slot);
  return true;
}

void Engine::claim(DeviceId id, UnitRef unit) {
  JobTable& job = table(unit.job);
  const UnitSpec& unit_spec = spec(unit);
  state(unit).claimed = true;
  state(unit).device = id;
  LaneState& lane = job.lanes[at(unit_spec.lane)];
  ++lane.cursor;
  lane.device = id;
  job.unclaimed_s -= unit_spec.cost_s;
  job.last_served = ++claims_;
  ++readiness_;  // its successor may be chosen now, for this device
  for (int l = 0; l < static_cast<int>(job.lanes.size()); ++l) rank(unit.job, l);
}

/// Whether the device's next unit may go elsewhere: nothing of it has been loaded, its lane is not
/// bound to a device, and its predecessor has ended.
bool Engine::may_be_stolen(DeviceId id) const {
  const DeviceTable& owner = table(id);
  if (!owner.next) return false;
  const UnitRef unit = *owner.next;
  const JobTable& job = table(unit.job);
  if (job.lanes.size() > 1 || made_for(job, 0).valid()) return false;
  const auto& lane_units = job.program->lane_units[0];
  const auto next = std::ranges::lower_bound(lane_units, unit.unit);
  return (next == lane_units.begin() || is_done(job, *std::prev(next))) &&
         std::ranges::none_of(spec(unit).weights, [&](int b) {
           return copies(id).find({unit.job, b}) != nullptr;
         });
}

/// An idle device takes a unit that another one chose for later.
bool Engine::steal(DeviceId thief) {
  for (std::size_t from = 0;;) {
    const DeviceId id = robbable_.next(from);
    if (!id.valid()) return false;
    from = id.index() + 1;
    const UnitRef unit = *table(id).next;
    if (!can_run(table(unit.job), thief)) continue;
    table(id).next.reset();
    note_state(id);
    touch(id);
    table(thief).current = unit;
    state(unit).device = thief;
    rank(unit.job, spec(unit).lane);
    return true;
  }
}

}  // namespace spillway
