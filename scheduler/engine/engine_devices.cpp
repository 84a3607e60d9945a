#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>

#include "scheduler/engine/engine.h"

namespace spillway {
namespace {

void note_work(std::vector<DeviceWork>& work, DeviceId device, double planned_s, double busy_s) {
  auto place = std::ranges::find(work, device, &DeviceWork::device);
  if (place == work.end()) place = work.insert(place, {.device = device});
  place->planned_s += planned_s;
  place->busy_s += busy_s;
}

RangeAllocator::End opposite(RangeAllocator::End end) {
  return end == RangeAllocator::End::low ? RangeAllocator::End::high : RangeAllocator::End::low;
}

}  // namespace

void Engine::drive(DeviceId id) {
  DeviceTable& device = table(id);
  if (device.state == DeviceState::gone) return;
  for (;;) {
    if (!device.current && device.next) {
      device.current = std::exchange(device.next, std::nullopt);
      device.side = opposite(device.side);
    }
    if (dispatcher_.is_overtaken(tables_, memory_, id)) take_back(id);
    if (!device.current) {
      if (!config_.double_buffer && !device.running.empty()) return;
      device.current = claim(id);
      if (!device.current && device.running.empty()) {
        device.current = dispatcher_.steal(tables_, memory_, id);
      }
      if (!device.current) return;
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

std::optional<UnitRef> Engine::claim(DeviceId id) {
  const auto unit = dispatcher_.claim(tables_, memory_, id);
  if (!unit) return unit;
  const JobTable& job = table(unit->job);
  const int track = spec(*unit).track;
  const bool is_last = job.program->track_units[at(track)].back() == unit->unit;
  if (is_last && !job.places.empty()) placer_.end_track(unit->job, track, job.places[at(track)]);
  return unit;
}

/// Undoes the claim of the unit that the device would run.
void Engine::take_back(DeviceId id) {
  const UnitRef unit = *std::exchange(table(id).current, std::nullopt);
  JobTable& job = table(unit.job);
  give_back(unit);
  TrackState& track = job.tracks[at(spec(unit).track)];
  if (track.cursor == 0) track.device = DeviceId();  // otherwise it is bound to this device
  dispatcher_.note_ready();
  dispatcher_.rank(tables_, unit.job);
}

/// Weights, sums, activations and the room of any one op, all or nothing; then the loads start.
bool Engine::reserve_unit(DeviceId id) {
  DeviceTable& device = table(id);
  const UnitRef ref = *device.current;
  if (state(ref).reserved) return true;
  if (!config_.double_buffer && !device.running.empty()) return false;
  // At most two units hold ranges; the ending one frees its weights first.
  if (device.running.size() > 1 && !same_unit(device.running.front(), device.running.back())) {
    return false;
  }
  const UnitSpec& unit = spec(ref);
  if (!sums_can_come(id, ref)) return false;
  const auto request = [&] {
    Request asked{.end = device.side, .workspace = unit.workspace, .op_area = unit.op_area};
    ask_for(asked, id, ref.job, unit.weights);
    ask_for(asked, id, ref.job, unit.sums);
    complete(asked, id);
    return asked;
  };
  Request asked = request();
  Room room = make_room(id, asked);
  if (room == Room::never) {  // kept copies fragment the memory: empty the device first
    evict_all(id);
    if (!sums_can_come(id, ref)) return false;
    asked = request();
    room = make_room(id, asked);
    if (room == Room::never) throw std::logic_error("engine: a planned unit does not fit");
  }
  if (room == Room::wait) return false;
  state(ref).reserved = true;
  device.group_reserved = device.group_reserved || state(ref).group == device.group;
  for (const auto* buffers : {&unit.weights, &unit.sums}) {
    for (int b : *buffers) {
      ++memory_.find(id, {ref.job, b})->leases;
      table(ref.job).last_units[at(b)] = ref.unit;
    }
  }
  for (BufferRef b : asked.place) {
    const bool is_new_sum = buffer_spec(b).kind == BufferKind::sum && !memory_.home_valid(b);
    if (is_new_sum) {
      memory_.find(id, b)->dirty = true;
    } else {
      memory_.load(*this, id, b);
    }
  }
  return true;
}

/// False while a sum to which the unit adds is being evicted.
bool Engine::sums_can_come(DeviceId id, UnitRef unit) {
  const auto leaves = [&](int b) { return is_leaving(id, {unit.job, b}); };
  if (std::ranges::none_of(spec(unit).sums, leaves)) return true;
  table(id).waits_for_space = true;
  watch(unit.job, id);
  return false;
}

bool Engine::is_leaving(DeviceId id, BufferRef ref) const {
  const Resident* entry = memory_.find(id, ref);
  return entry && entry->draining != 0;
}

bool Engine::same_unit(ActionId a, ActionId b) const {
  const InFlight &first = in_flight_.at(a), &second = in_flight_.at(b);
  return first.job == second.job && first.unit == second.unit;
}

/// True if the op's inputs are here or can be loaded. If not, starts the necessary write backs.
bool Engine::fetch_homes(DeviceId id, const OpSpec& op, JobId job) {
  if (memory_.fetch_homes(*this, id, job, op.inputs)) return true;
  table(id).waits_for_space = true;
  watch(job, id);
  return false;
}

Engine::Room Engine::make_op_room(DeviceId id, const OpSpec& op, JobId job) {
  DeviceTable& device = table(id);
  Request request{.end = device.side};
  ask_for(request, id, job, op.inputs);
  ask_for(request, id, job, op.outputs);
  complete(request, id);
  const Room room = make_room(id, request);
  if (room == Room::ready) {
    for (BufferRef b : request.place) {
      if (std::ranges::count(op.inputs, b.buffer) > 0) memory_.load(*this, id, b);
    }
    return room;
  }
  if (room == Room::wait || !device.running.empty()) return Room::wait;
  // Space may be taken by prefetched copies or by inputs. Dirty ones are written back first.
  evict_all(id);
  return Room::wait;
}

/// Whether the op keeps its graph or finds it kept.
bool Engine::has_graph(DeviceId id, UnitRef unit, const OpSpec& op) {
  if (op.graph < 0) return false;
  if (op.kind == OpKind::backward) return memory_.find(id, {unit.job, op.graph}) != nullptr;
  return keep_graph(id, unit, op);
}

/// A forward keeps its graph if that displaces nothing. The weights and inputs that the graph needs
/// stay where they are until it is gone.
bool Engine::keep_graph(DeviceId id, UnitRef unit, const OpSpec& op) {
  const BufferRef graph{unit.job, op.graph};
  Request request{.place = {graph}, .end = table(id).side};
  complete(request, id);
  if (!memory_.place_all(id, request)) return false;
  for (const auto* needed : {&spec(unit).weights, &op.inputs}) {
    memory_.hold_for(id, graph, *needed);
  }
  note_use(id);
  touch(id);
  return true;
}

/// For an op that makes it or uses it up.
void Engine::lease_graph(InFlight& op, int graph) {
  Resident* entry = memory_.find(op.device, {op.job, graph});
  ++entry->leases;
  if (entry->writer != 0) op.after.push_back(entry->writer);
  table(op.job).last_units[at(graph)] = op.unit;
}

bool Engine::start_op(DeviceId id) {
  DeviceTable& device = table(id);
  const UnitRef ref = *device.current;
  UnitState& unit_state = state(ref);
  JobTable& job = table(ref.job);
  Residency& held = memory_.on(id);
  const int number = spec(ref).first_op + unit_state.ops_started;
  const OpSpec& op = job.program->ops[at(number)];
  if (device.running.size() >= (config_.double_buffer ? 2u : 1u)) return false;
  if (!fetch_homes(id, op, ref.job)) return false;
  if (op.graph >= 0 && is_leaving(id, {ref.job, op.graph})) return false;
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
                  .has_graph = has_graph(id, ref, op),
                  .workspace = spec(ref).workspace,
                  .used_high = held.used()};
  StartOp start_action{.job = ref.job,
                       .device = id,
                       .step_kind = job.kind.index(),
                       .step = job.step,
                       .attempt = job.attempt,
                       .unit = ref.unit,
                       .op = number,
                       .has_graph = action.has_graph};
  for_each_buffer(spec(ref), op, [&](int buffer, BufferUse use) {
    Resident* entry = memory_.find(id, {ref.job, buffer});
    assert(entry);
    assert(entry->version == job.step || memory_.shared_number({ref.job, buffer}) >= 0);
    if (use == BufferUse::input || use == BufferUse::output) ++entry->leases;
    if (entry->filling != 0) action.after.push_back(entry->filling);
    if (entry->writer != 0) action.after.push_back(entry->writer);
    if (use == BufferUse::output) entry->dirty = true;  // sums are since they came
    held.set_evicting(*entry, false);
    start_action.offsets.push_back(entry->offset);
    job.last_units[at(buffer)] = ref.unit;
  });
  if (action.has_graph) lease_graph(action, op.graph);
  std::ranges::sort(action.after);
  const auto repeated = std::ranges::unique(action.after);
  action.after.erase(repeated.begin(), repeated.end());
  action.others_ready_s = unit_state.ready_s;
  if (std::exchange(device.waits_for_space, false)) action.transfers_ready_s = device.space_ready_s;
  start_action.after.assign(action.after.begin(), action.after.end());
  start_action.id = start(std::move(action));
  for (int b : op.outputs) held.find({ref.job, b})->writer = start_action.id;
  if (start_action.has_graph) held.find({ref.job, op.graph})->writer = start_action.id;
  device.running.push_back(start_action.id);
  out_->push_back(std::move(start_action));
  ++unit_state.ops_started;
  return true;
}

/// Loads the inputs of the running unit's next ops in order, so that they do not wait for the
/// weights of the next unit, which use the same link. Takes what has been made, and only room that
/// is free and that no op needs. Does nothing on a device that was ever short of room, where such
/// copies could displace each other for ever.
void Engine::load_inputs_ahead(DeviceId id) {
  if (table(id).counters.short_of_room) return;
  const UnitRef ref = *table(id).current;
  const UnitSpec& unit = spec(ref);
  const int first = unit.first_op + state(ref).ops_started;
  const int end = std::min(first + kOpsAhead, unit.first_op + unit.num_ops);
  for (int i = first; i < end; ++i) {
    for (int b : table(ref.job).program->ops[at(i)].inputs) {
      const BufferRef input{ref.job, b};
      if (memory_.find(id, input)) continue;
      if (!memory_.can_come(*this, input)) return watch(ref.job, id);
      Request request{.place = {input}, .end = table(id).side, .op_area = unit.op_area};
      complete(request, id);
      if (!memory_.place_all(id, request)) return;
      note_use(id);
      memory_.load(*this, id, input);
    }
  }
}

/// Chooses the next unit and loads its weights if they fit beside the running unit: one block at a
/// time, because the running unit's inputs use the same link.
void Engine::prefetch(DeviceId id) {
  DeviceTable& device = table(id);
  if (!device.current || !state(*device.current).reserved) return;
  load_inputs_ahead(id);
  if (!device.next) device.next = claim(id);
  if (!device.next) return;
  const UnitSpec& running = spec(*device.current);
  const UnitSpec& next = spec(*device.next);
  std::vector<Bytes> op_area = running.op_area;
  Request request{.end = opposite(device.side),
                  .workspace = running.workspace,
                  .later_workspace = next.workspace};
  ask_for(request, id, device.next->job, next.weights);
  const auto is_coming = [&](BufferRef b) { return memory_.find(id, b)->filling != 0; };
  if (request.place.empty() || std::ranges::any_of(request.keep, is_coming)) return;
  while (request.place.size() > 1) {
    op_area.push_back(buffer_spec(request.place.back()).bytes);
    request.later.push_back(op_area.back());
    request.place.pop_back();
  }
  for (int b : next.sums) request.later.push_back(buffer_spec({device.next->job, b}).bytes);
  request.later.insert(request.later.end(), next.op_area.begin(), next.op_area.end());
  request.op_area = op_area;
  complete(request, id);
  if (!memory_.op_area_fits(id, request) || make_room(id, request) != Room::ready) {
    device.waits_for_space = false;
    return;
  }
  memory_.load(*this, id, request.place.front());
}

void Engine::op_done(const InFlight& action, const Done& done) {
  DeviceTable& device = table(action.device);
  assert(!device.running.empty() && device.running.front() == done.id);  // ops end in order
  device.running.erase(device.running.begin());
  account_op(action, done);
  JobTable& job = table(action.job);
  const OpSpec& op = job.program->ops[at(action.op)];
  note_work(job.work, action.device, op.seconds(action.has_graph),
            done.finished_s - done.started_s);
  Residency& held = memory_.on(action.device);
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (int b : *list) --held.find({action.job, b})->leases;
  }
  for (int b : op.outputs) held.find({action.job, b})->writer = 0;
  if (action.has_graph) graph_op_done(action.device, {action.job, op.graph}, op.kind);
  for (ActionId id : device.running) {
    InFlight& waiting = in_flight_.at(id);
    if (std::ranges::find(waiting.after, done.id) != waiting.after.end()) {
      waiting.others_ready_s = std::max(waiting.others_ready_s, done.finished_s);
    }
  }
  if (job.phase != JobPhase::running) return end_shared_leases(action.job);
  for (int b : op.inputs) {
    if (--job.reads_left[at(b)] == 0) memory_.drop_everywhere(*this, {action.job, b});
  }
  UnitState& unit = job.units[at(action.unit)];
  ++unit.ops_done;
  if (job.is_done(action.unit)) {
    unit_done(action.job, action.unit, done.finished_s);
  }
}

/// A backward has used up its graph.
void Engine::graph_op_done(DeviceId id, BufferRef graph, OpKind kind) {
  Resident* entry = memory_.find(id, graph);
  --entry->leases;
  entry->writer = 0;
  if (kind == OpKind::forward) return;
  memory_.drop(*this, id, graph);
  ++table(id).counters.kept_graphs;
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
  counters.hidden_s += device.overlap.op_done(done.started_s, done.finished_s);
  counters.peak_bytes = std::max(counters.peak_bytes, action.used_high + done.activation_peak);
  counters.activation_peak_bytes = std::max(counters.activation_peak_bytes, done.activation_peak);
}

void Engine::unit_done(JobId id, int number, double now_s) {
  JobTable& job = table(id);
  const UnitSpec& unit = job.program->units[at(number)];
  UnitState& unit_state = job.units[at(number)];
  const DeviceId device = unit_state.device;
  for (const auto* list : {&unit.weights, &unit.sums}) {
    for (int b : *list) --memory_.find(device, {id, b})->leases;
  }
  drop_weights(device, id, number);
  unit_state.drains_left = static_cast<int>(unit.drains.size());
  for (int b : unit.drains) memory_.finish_sum(*this, device, {id, b});
  const bool is_last = !unit.drains.empty();  // otherwise a later unit adds to its sums
  for (int b : unit.sums) {
    if (is_last && copies(device).find({id, b})->draining == 0) {
      memory_.drop(*this, device, {id, b});
    }
  }
  for (int u : job.program->units_after_unit[at(number)]) unit_dependency_done(id, u, now_s);
  const auto& track_units = job.program->track_units[at(unit.track)];
  const std::size_t cursor = job.tracks[at(unit.track)].cursor;
  if (cursor < track_units.size()) {
    UnitState& successor = job.units[at(track_units[cursor])];
    successor.ready_s = std::max(successor.ready_s, now_s);
  }
  dispatcher_.note_ready();
  dispatcher_.rank(tables_, id, unit.track);
  if (unit_state.drains_left == 0) unit_drained(id, number);
}

}  // namespace spillway
