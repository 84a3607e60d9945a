#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>

#include "scheduler/engine.h"

namespace spillway {
namespace {

std::vector<BufferRef> refs(JobId job, std::initializer_list<const std::vector<int>*> lists) {
  std::vector<BufferRef> found;
  for (const auto* list : lists) {
    for (int buffer : *list) found.push_back({job, buffer});
  }
  return found;
}

RangeAllocator::End opposite(RangeAllocator::End end) {
  return end == RangeAllocator::End::low ? RangeAllocator::End::high : RangeAllocator::End::low;
}

}  // namespace

void Engine::drive(DeviceId id) {
  DeviceTable& device = table(id);
  for (;;) {
    if (!device.current && device.next) {
      device.current = std::exchange(device.next, std::nullopt);
      device.side = opposite(device.side);
    }
    if (!device.current) {
      if (!config_.double_buffer && !device.running.empty()) return;
      if (!choose(id, device.current) && !(device.running.empty() && steal(id))) return;
    }
    if (!reserve_unit(id)) return;
    while (device.current && start_op(id)) {
      if (state(*device.current).ops_started == spec(*device.current).num_ops) {
        device.current.reset();
      }
    }
    if (device.current) return;
  }
}

/// Whether the lane's first unclaimed unit may be claimed by the device now.
bool Engine::may_run(DeviceId id, JobId job_id, int lane) const {
  const JobTable& job = jobs_.at(job_id);
  const DeviceTable& device = devices_[id.index()];
  const auto& units = job.program->lane_units[at(lane)];
  const std::size_t cursor = job.lane_cursor[at(lane)];
  if (cursor == units.size() || job.units[at(units[cursor])].waits_for > 0) return false;
  if (job.plan->needed_budget > device.memory.budget()) return false;
  if (cursor > 0) {
    const int before = units[cursor - 1];
    const UnitState& previous = job.units[at(before)];
    const bool done = previous.ops_done == job.program->units[at(before)].num_ops;
    // Its predecessor may still run here: the device's queue keeps the order.
    if (!done && !(config_.double_buffer && previous.device == id)) return false;
  }
  if (job.lane_device.size() == 1) return true;
  const DeviceId bound = job.lane_device[at(lane)];
  if (bound.valid()) return bound == id;
  return std::ranges::find(job.lane_device, id) == job.lane_device.end();
}

Candidate Engine::candidate(DeviceId id, JobId job_id, int lane) const {
  const JobTable& job = jobs_.at(job_id);
  const int unit = job.program->lane_units[at(lane)][job.lane_cursor[at(lane)]];
  Candidate found{.job = job_id,
                  .lane = lane,
                  .unit = unit,
                  .remaining_s = remaining_s(job),
                  .step = job.step,
                  .last_served = job.last_served};
  const UnitSpec& unit_spec = job.program->units[at(unit)];
  const auto count = [&](const std::vector<int>& buffers) {
    for (int b : buffers) {
      const Resident* entry = devices_[id.index()].memory.find({job_id, b});
      if (entry) found.resident_bytes += entry->bytes;
    }
  };
  count(unit_spec.weights);
  for (int i = 0; i < unit_spec.num_ops; ++i) {
    count(job.program->ops[at(unit_spec.first_op + i)].inputs);
  }
  return found;
}

bool Engine::choose(DeviceId id, std::optional<UnitRef>& slot) {
  DeviceTable& device = table(id);
  if (device.tried == readiness_) return false;
  std::vector<Candidate> candidates;
  for (const auto& [job_id, job] : jobs_) {
    if (job.phase != JobPhase::running) continue;
    for (int lane = 0; lane < static_cast<int>(job.lane_cursor.size()); ++lane) {
      if (may_run(id, job_id, lane)) candidates.push_back(candidate(id, job_id, lane));
    }
  }
  if (candidates.empty()) {
    device.tried = readiness_;
    return false;
  }
  const Candidate& best = candidates[pick(*config_.policy, candidates)];
  slot = UnitRef{best.job, best.unit};
  claim(id, *slot);
  return true;
}

void Engine::claim(DeviceId id, UnitRef unit) {
  JobTable& job = jobs_.at(unit.job);
  const UnitSpec& unit_spec = spec(unit);
  UnitState& unit_state = state(unit);
  unit_state.claimed = true;
  unit_state.device = id;
  ++job.lane_cursor[at(unit_spec.lane)];
  job.lane_device[at(unit_spec.lane)] = id;
  job.unclaimed_s -= unit_spec.cost_s;
  job.last_served = ++claims_;
  ++readiness_;  // its successor may be chosen now, for this device
}

/// An idle device takes a unit that another one chose for later and has not begun to load.
bool Engine::steal(DeviceId thief) {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    DeviceTable& owner = devices_[d];
    if (!owner.next || DeviceId(d) == thief) continue;
    const UnitRef unit = *owner.next;
    const JobTable& job = jobs_.at(unit.job);
    const auto& lane_units = job.program->lane_units[at(spec(unit).lane)];
    const auto position = std::ranges::find(lane_units, unit.unit) - lane_units.begin();
    const auto held = [&](int b) { return owner.memory.find({unit.job, b}) != nullptr; };
    const int before = position > 0 ? lane_units[static_cast<std::size_t>(position - 1)] : -1;
    const bool ready =
        before < 0 || job.units[at(before)].ops_done == job.program->units[at(before)].num_ops;
    if (!ready || job.lane_device.size() > 1 || std::ranges::any_of(spec(unit).weights, held) ||
        job.plan->needed_budget > table(thief).memory.budget()) {
      continue;
    }
    owner.next.reset();
    state(unit).device = thief;
    table(thief).current = unit;
    return true;
  }
  return false;
}

/// Weights, sums, activations and the room of any one op, all or nothing; then the loads start.
bool Engine::reserve_unit(DeviceId id) {
  DeviceTable& device = table(id);
  const UnitRef ref = *device.current;
  if (state(ref).reserved) return true;
  if (!config_.double_buffer && !device.running.empty()) return false;
  // Two units at once at most: the one that ends takes its weights away first.
  if (device.running.size() > 1 && !same_unit(device.running.front(), device.running.back())) {
    return false;
  }
  const UnitSpec& unit = spec(ref);
  const std::vector<BufferRef> all = refs(ref.job, {&unit.weights, &unit.sums});
  Request request{.workspace = unit.workspace, .op_area = unit.op_area, .end = device.side};
  const auto fill_request = [&] {
    request.place.clear();
    request.keep.clear();
    for (BufferRef b : all) (device.memory.find(b) ? request.keep : request.place).push_back(b);
  };
  fill_request();
  Room room = make_room(id, request);
  if (room == Room::never) {  // copies kept lie badly: start from an empty device
    drop_all_idle(id, {});
    fill_request();
    room = make_room(id, request);
    if (room == Room::never) throw std::logic_error("engine: a planned unit does not fit");
  }
  if (room == Room::wait) return false;
  state(ref).reserved = true;
  for (BufferRef b : all) {
    ++device.memory.find(b)->leases;
    buffer_state(b).last_unit = ref.unit;
  }
  for (int b : unit.sums) device.memory.find({ref.job, b})->dirty = true;
  for (BufferRef b : request.place) {
    if (buffer_spec(b).kind == BufferKind::weights) load(id, b);
  }
  return true;
}

bool Engine::same_unit(ActionId a, ActionId b) const {
  const InFlight &first = in_flight_.at(a), &second = in_flight_.at(b);
  return first.job == second.job && first.unit == second.unit;
}

/// Starts the way of inputs that only another device holds to their homes; true if all are there.
bool Engine::fetch_homes(DeviceId id, const OpSpec& op, JobId job) {
  bool ready = true;
  for (int input : op.inputs) {
    const BufferRef ref{job, input};
    if (table(id).memory.find(ref) || buffer_state(ref).home_valid) continue;
    ready = false;
    for (DeviceId holder : buffer_state(ref).holders) {
      const Resident* entry = table(holder).memory.find(ref);
      if (entry->dirty && entry->draining == 0 && entry->writer == 0 && !home_is_busy(ref)) {
        write_back(holder, ref, false);
      }
    }
  }
  if (!ready) table(id).waits_for_space = true;
  return ready;
}

Engine::Room Engine::make_op_room(DeviceId id, const OpSpec& op, JobId job) {
  DeviceTable& device = table(id);
  Request request{.end = device.side};
  const auto fill_request = [&] {
    request.place.clear();
    request.keep.clear();
    for (BufferRef b : refs(job, {&op.inputs, &op.outputs})) {
      (device.memory.find(b) ? request.keep : request.place).push_back(b);
    }
  };
  fill_request();
  Room room = make_room(id, request);
  if (room == Room::ready) {
    for (BufferRef b : request.place) {
      if (std::ranges::find(op.inputs, b.buffer) != op.inputs.end()) load(id, b);
    }
    return room;
  }
  if (room == Room::wait || !device.running.empty()) return Room::wait;
  // What was prefetched, then the op's own inputs, may lie in the way. Dirty ones go home first.
  drop_all_idle(id, {});
  return Room::wait;
}

bool Engine::start_op(DeviceId id) {
  DeviceTable& device = table(id);
  const UnitRef ref = *device.current;
  UnitState& unit_state = state(ref);
  const JobTable& job = jobs_.at(ref.job);
  const int number = spec(ref).first_op + unit_state.ops_started;
  const OpSpec& op = job.program->ops[at(number)];
  if (device.running.size() >= (config_.double_buffer ? 2u : 1u)) return false;
  if (!fetch_homes(id, op, ref.job)) return false;
  Room room = make_op_room(id, op, ref.job);
  if (room != Room::ready && device.running.empty() && fetch_homes(id, op, ref.job)) {
    room = make_op_room(id, op, ref.job);  // the device may be empty now
  }
  if (room != Room::ready) return false;

  InFlight action{.kind = InFlight::Kind::op,
                  .job = ref.job,
                  .device = id,
                  .unit = ref.unit,
                  .op = number,
                  .workspace = op.workspace,
                  .used_high = device.memory.used()};
  StartOp start_action{0, ref.job, id, job.flavor, job.step, ref.unit, number, {}, {}};
  std::set<ActionId> after;
  const auto use = [&](int buffer, bool writes, bool per_op) {
    Resident* entry = device.memory.find({ref.job, buffer});
    assert(entry && entry->version == job.step);
    if (per_op) ++entry->leases;
    if (entry->filling != 0) after.insert(entry->filling);
    if (entry->writer != 0) after.insert(entry->writer);
    if (writes) entry->dirty = true;
    entry->doomed = false;
    start_action.offsets.push_back(entry->offset);
    buffer_state({ref.job, buffer}).last_unit = ref.unit;
  };
  const UnitSpec& unit = spec(ref);
  for (int b : unit.weights) use(b, false, false);
  for (int b : unit.sums) use(b, true, false);
  for (int b : op.inputs) use(b, false, true);
  for (int b : op.outputs) use(b, true, true);

  action.after.assign(after.begin(), after.end());
  action.others_ready_s = unit_state.ready_s;
  if (std::exchange(device.waits_for_space, false)) action.transfers_ready_s = device.space_ready_s;
  start_action.after = action.after;
  start_action.id = start(std::move(action));
  for (int b : op.outputs) device.memory.find({ref.job, b})->writer = start_action.id;
  device.running.push_back(start_action.id);
  out_->push_back(std::move(start_action));
  ++unit_state.ops_started;
  return true;
}

/// Chooses the unit that runs next and loads its weights where they have room beside what runs.
void Engine::prefetch(DeviceId id) {
  DeviceTable& device = table(id);
  if (!device.current || !state(*device.current).reserved) return;
  if (!device.next && !choose(id, device.next)) return;
  const UnitSpec& running = spec(*device.current);
  const UnitSpec& next = spec(*device.next);
  Request request{.workspace = running.workspace,
                  .op_area = running.op_area,
                  .later_workspace = next.workspace,
                  .end = opposite(device.side)};
  for (int b : next.sums) request.later.push_back(buffer_spec({device.next->job, b}).bytes);
  request.later.insert(request.later.end(), next.op_area.begin(), next.op_area.end());
  for (int b : next.weights) {
    const BufferRef ref{device.next->job, b};
    (device.memory.find(ref) ? request.keep : request.place).push_back(ref);
  }
  if (request.place.empty()) return;
  if (!op_area_fits(id, request) || make_room(id, request) != Room::ready) {
    device.waits_for_space = false;
    return;
  }
  for (BufferRef b : request.place) load(id, b);
}

void Engine::op_done(const InFlight& action, const Done& done) {
  DeviceTable& device = table(action.device);
  std::erase(device.running, done.id);
  account_op(action, done);
  JobTable& job = jobs_.at(action.job);
  const OpSpec& op = job.program->ops[at(action.op)];
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (int b : *list) --device.memory.find({action.job, b})->leases;
  }
  for (int b : op.outputs) device.memory.find({action.job, b})->writer = 0;
  for (ActionId id : device.running) {
    InFlight& waiting = in_flight_.at(id);
    if (std::ranges::find(waiting.after, done.id) != waiting.after.end()) {
      waiting.others_ready_s = std::max(waiting.others_ready_s, done.finished_s);
    }
  }
  if (job.phase != JobPhase::running) return;
  for (int b : op.frees) drop_everywhere({action.job, b});
  UnitState& unit = job.units[at(action.unit)];
  if (++unit.ops_done == job.program->units[at(action.unit)].num_ops) {
    unit_done(action.job, action.unit, done.finished_s);
  }
}

void Engine::account_op(const InFlight& action, const Done& done) {
  DeviceTable& device = table(action.device);
  DeviceCounters& counters = device.counters;
  ++counters.ops;
  counters.busy_s += done.finished_s - done.started_s;
  const double could_start = std::max(device.last_op_finished_s, action.others_ready_s);
  const double transfers = std::min(done.started_s, action.transfers_ready_s);
  counters.stall_s += std::max(0.0, transfers - could_start);
  device.last_op_finished_s = done.finished_s;
  counters.peak_bytes = std::max(counters.peak_bytes, action.used_high + done.activation_peak);
  counters.activation_peak_bytes = std::max(counters.activation_peak_bytes, done.activation_peak);
}

void Engine::unit_done(JobId id, int number, double now_s) {
  JobTable& job = jobs_.at(id);
  const UnitSpec& unit = job.program->units[at(number)];
  UnitState& unit_state = job.units[at(number)];
  const DeviceId device = unit_state.device;
  for (const auto* list : {&unit.weights, &unit.sums}) {
    for (int b : *list) --table(device).memory.find({id, b})->leases;
  }
  drop_weights(device, id, number);
  unit_state.drains_left = static_cast<int>(unit.drains.size());
  for (int b : unit.drains) write_back(device, {id, b}, true);
  for (int b : unit.sums) {
    const Resident* sum = table(device).memory.find({id, b});
    if (sum->draining == 0) drop(device, {id, b});
  }
  const auto& lane_units = job.program->lane_units[at(unit.lane)];
  const std::size_t cursor = job.lane_cursor[at(unit.lane)];
  if (cursor < lane_units.size()) {
    UnitState& successor = job.units[at(lane_units[cursor])];
    successor.ready_s = std::max(successor.ready_s, now_s);
  }
  ++readiness_;
  if (unit_state.drains_left == 0) unit_drained(id, number);
}

}  // namespace spillway
