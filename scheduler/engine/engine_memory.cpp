#include <algorithm>
#include <cassert>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "scheduler/engine/engine.h"

namespace spillway {
namespace {

template <typename Items, typename T>
bool contains(const Items& items, const T& item) {
  return std::ranges::find(items, item) != items.end();
}

/// Copies to look up often: a unit of many layers has hundreds.
class CopySet {
 public:
  CopySet(std::initializer_list<const ShortList<BufferRef>*> lists) {
    for (const auto* list : lists) refs_.insert(refs_.end(), list->begin(), list->end());
    std::ranges::sort(refs_);
  }
  bool contains(BufferRef ref) const { return std::ranges::binary_search(refs_, ref); }

 private:
  std::vector<BufferRef> refs_;
};

/// Whether `pieces`, placed in order, and `workspace` fit beside the copies that stay.
template <typename MakeStays>
bool fits(const Residency& memory, const MakeStays& make_stays, std::span<const Bytes> pieces,
          RangeAllocator::End end, Bytes workspace) {
  Bytes wanted = 0;
  for (Bytes piece : pieces) wanted += round_up(std::max<Bytes>(piece, 1), kAlignment);
  // Most of the time nothing has to go: one hole holds all.
  if (memory.used() + wanted + workspace <= memory.budget() &&
      memory.space().largest_hole() >= wanted + kAlignment) {
    return true;
  }
  RangeAllocator space = memory.space();
  const auto stays = make_stays();
  for (const auto& item : memory.entries()) {
    if (!stays(item)) space.free(item.second.offset, item.second.bytes);
  }
  for (Bytes piece : pieces) {
    if (!space.allocate(piece, end)) return false;
  }
  return space.used() + workspace <= space.capacity();
}

}  // namespace

Bytes Engine::reserved_workspace(const DeviceTable& device) const {
  Bytes most = 0;
  if (device.current && state(*device.current).reserved) {
    most = spec(*device.current).workspace;
  }
  for (ActionId id : device.running) most = std::max(most, in_flight_.at(id).workspace);
  return most;
}

void Engine::note_use(DeviceId id) {
  DeviceTable& device = table(id);
  const Bytes used = device.memory.used();
  for (ActionId op : device.running) {
    in_flight_.at(op).used_high = std::max(in_flight_.at(op).used_high, used);
  }
  device.counters.peak_bytes = std::max(device.counters.peak_bytes, used);
}

/// Makes room for everything in `request`, or leaves the tables as they are but for evictions.
/// wait: something in flight has to end first. never: not while what is leased stays.
Engine::Room Engine::make_room(DeviceId id, const Request& request) {
  DeviceTable& device = table(id);
  for (;;) {
    if (place_all(id, request)) return Room::ready;
    device.counters.short_of_room = true;
    const Bytes coming = device.memory.doomed_bytes();
    Bytes wanted = 0;
    for (BufferRef ref : request.place) wanted += buffer_spec(ref).bytes;
    const Bytes workspace = std::max(request.workspace, reserved_workspace(device));
    const bool enough_comes =
        coming > 0 && device.memory.used() + wanted + workspace <= device.memory.budget() + coming;
    if (enough_comes || !evict_one(id, request)) break;
  }
  const auto is_held_up = [&](const auto& item) {
    return cannot_leave(id, item.first, item.second) ||
           table(item.first.job).phase != JobPhase::running;
  };
  if (device.num_transfers > 0 || std::ranges::any_of(device.memory.entries(), is_held_up)) {
    device.waits_for_space = true;
    return Room::wait;
  }
  return device.running.empty() ? Room::never : Room::wait;
}

bool Engine::place_all(DeviceId id, const Request& request) {
  DeviceTable& device = table(id);
  Bytes total = std::max(request.workspace, reserved_workspace(device)) + device.memory.used();
  for (BufferRef ref : request.place) total += buffer_spec(ref).bytes;
  if (total > device.memory.budget()) return false;
  std::size_t placed = 0;
  for (; placed < request.place.size(); ++placed) {
    const BufferRef ref = request.place[placed];
    Resident* entry = device.memory.place(ref, buffer_spec(ref).bytes, request.end);
    if (!entry) break;
    entry->version = table(ref.job).step;
  }
  if (placed < request.place.size() || !op_area_fits(id, request) || !later_fits(id, request)) {
    for (std::size_t i = 0; i < placed; ++i) device.memory.release(request.place[i]);
    return false;
  }
  for (BufferRef ref : request.place) buffer_state(ref).holders.push_back(id);
  note_use(id);
  touch(id);
  return true;
}

/// Whether the pieces of request.op_area find room once all that may go has gone.
bool Engine::op_area_fits(DeviceId id, const Request& request) const {
  if (request.op_area.empty()) return true;
  const DeviceTable& device = devices_[id.index()];
  const auto stays = [&] {
    return [needed = CopySet{&request.keep, &request.place}](const auto& item) {
      return item.second.busy() || needed.contains(item.first);
    };
  };
  return fits(device.memory, stays, request.op_area, device.side,
              std::max(request.workspace, reserved_workspace(device)));
}

/// Whether a prefetched unit will find room around its weights when nothing else has to stay.
bool Engine::later_fits(DeviceId id, const Request& request) const {
  if (request.later.empty()) return true;
  const auto stays = [&] {
    return [needed = CopySet{&request.keep, &request.place}](const auto& item) {
      return needed.contains(item.first);
    };
  };
  return fits(devices_[id.index()].memory, stays, request.later, request.end,
              request.later_workspace);
}

bool Engine::is_next_weight(const DeviceTable& device, BufferRef ref) const {
  if (!device.next || device.next->job != ref.job) return false;
  return std::ranges::binary_search(spec(*device.next).weights, ref.buffer);
}

/// Weights leave with their unit, unless the lane's next one uses them too and may run here. So the
/// bytes that a step moves follow from its program, not from when transfers end.
void Engine::drop_weights(DeviceId id, JobId job_id, int number) {
  const JobTable& job = table(job_id);
  const UnitSpec& unit = job.program->units[at(number)];
  const auto& lane_units = job.program->lane_units[at(unit.lane)];
  const auto after = std::ranges::upper_bound(lane_units, number);
  const bool goes_on = after != lane_units.end() &&
                       (!job.units[at(*after)].claimed || job.units[at(*after)].device == id);
  for (int b : unit.weights) {
    const BufferRef ref{job_id, b};
    if (table(id).memory.find(ref)->busy()) continue;
    if (goes_on && contains(job.program->units[at(*after)].weights, b)) continue;
    if (is_used_again(id, ref)) ++table(id).counters.evictions;
    drop(id, ref);
  }
}

/// Whether a lane has the copy on this device still to read. Lanes on other devices have copies of
/// their own.
bool Engine::is_used_again(DeviceId id, BufferRef ref) const {
  const JobTable& job = table(ref.job);
  return std::ranges::any_of(job.program->unit_users[at(ref.buffer)], [&](int u) {
    const LaneState& lane = job.lanes[at(job.program->units[at(u)].lane)];
    return !is_done(job, u) && (job.lanes.size() == 1 || lane.device == id);
  });
}

/// Units of its job until a buffer is used again; ties: later virtual nodes are farther.
double Engine::next_use(BufferRef ref) const {
  const JobTable& job = table(ref.job);
  if (!job.program) return std::numeric_limits<double>::infinity();
  const BufferState& buffer = job.buffers[at(ref.buffer)];
  for (int u : job.program->unit_users[at(ref.buffer)]) {
    if (u <= buffer.last_unit || is_done(job, u)) continue;
    const auto lane = at(job.program->units[at(u)].lane);
    const auto& lane_units = job.program->lane_units[lane];
    const auto position = std::ranges::lower_bound(lane_units, u) - lane_units.begin();
    const auto cursor = static_cast<std::ptrdiff_t>(job.lanes[lane].cursor);
    return static_cast<double>(position - cursor) + 1e-6 * static_cast<double>(ref.buffer);
  }
  return std::numeric_limits<double>::infinity();
}

/// Takes away the copy that is used again last (Belady's rule: the programs are known).
/// Source: Belady, "A study of replacement algorithms", 1966.
bool Engine::evict_one(DeviceId id, const Request& request) {
  DeviceTable& device = table(id);
  std::optional<BufferRef> victim;
  double farthest = 0;
  const CopySet kept{&request.keep};
  for (const auto& [ref, entry] : device.memory.entries()) {
    if (entry.busy() || kept.contains(ref)) continue;
    if (!request.may_drop_next && is_next_weight(device, ref)) continue;
    if (cannot_leave(id, ref, entry)) continue;
    const double distance = next_use(ref);
    if (!victim || distance > farthest || (distance == farthest && ref < *victim)) {
      victim = ref;
      farthest = distance;
    }
  }
  if (!victim) return false;
  ++device.counters.evictions;
  const bool is_read_again = table(victim->job).phase == JobPhase::running;
  if (device.memory.find(*victim)->dirty && is_read_again) {
    write_back(id, *victim, true);
  } else {
    drop(id, *victim);
  }
  return true;
}

void Engine::drop_all_idle(DeviceId id) {
  const Request request{.may_drop_next = true};
  while (evict_one(id, request)) {
  }
}

/// From its home, or, where that is not valid, from the device that can send it.
void Engine::load(DeviceId id, BufferRef ref) {
  DeviceTable& device = table(id);
  Resident* entry = device.memory.find(ref);
  const BufferSpec& spec = buffer_spec(ref);
  const DeviceId peer = buffer_state(ref).home_valid ? DeviceId() : mover(ref);
  touch(id);
  assert(spec.home != kNoHome);
  entry->filling = start({.kind = InFlight::Kind::copy,
                          .job = ref.job,
                          .device = id,
                          .buffer = ref.buffer,
                          .direction = CopyDirection::to_device,
                          .peer = peer});
  ++device.num_transfers;
  device.overlap.copy_started(CopyDirection::to_device);
  ++device.counters.loads;
  if (!device.running.empty()) ++device.counters.prefetches;
  device.counters.h2d_bytes += spec.bytes;
  if (spec.kind == BufferKind::weights) device.counters.h2d_weight_bytes += spec.bytes;
  StartCopy copy{.id = entry->filling,
                 .job = ref.job,
                 .device = id,
                 .attempt = table(ref.job).attempt,
                 .buffer = ref.buffer,
                 .device_offset = entry->offset,
                 .home = spec.home,
                 .bytes = spec.bytes,
                 .peer = peer};
  if (peer.valid()) {
    ++device.counters.moves;
    copy.peer_offset = send_away(peer, ref, copy.id);
  } else {
    table(ref.job).busy_homes.push_back(spec.home);
  }
  out_->push_back(copy);
}

/// A device whose dirty copy nothing else uses, so that it can go to another one; else not valid.
DeviceId Engine::mover(BufferRef ref) const {
  for (DeviceId holder : buffer_state(ref).holders) {
    const Resident* entry = table(holder).memory.find(ref);
    if (entry->dirty && !entry->busy() && entry->writer == 0) return holder;
  }
  return DeviceId();
}

/// The part of a move at the device that it comes from. Returns where the copy lies there.
Bytes Engine::send_away(DeviceId id, BufferRef ref, ActionId move) {
  DeviceTable& device = table(id);
  Resident* entry = device.memory.find(ref);
  touch(id);
  entry->draining = move;
  device.memory.doom(*entry, true);
  ++device.num_transfers;
  device.counters.d2h_bytes += buffer_spec(ref).bytes;  // over the links of both
  return entry->offset;
}

/// What a copy that has ended, or was lost, kept busy at its other end: its home, or the device
/// that it came from, unless that has gone.
void Engine::release_other_end(const InFlight& copy, const Done& done) {
  const BufferRef ref{copy.job, copy.buffer};
  if (!copy.peer.valid()) {
    auto& busy_homes = table(ref.job).busy_homes;
    busy_homes.erase(std::ranges::find(busy_homes, buffer_spec(ref).home));
    return;
  }
  DeviceTable& source = table(copy.peer);
  if (source.state == DeviceState::gone) return;
  Resident* entry = source.memory.find(ref);
  touch(copy.peer);
  --source.num_transfers;
  entry->draining = 0;
  source.memory.doom(*entry, false);
  if (done.lost) return;  // it stays
  entry->dirty = false;
  if (source.waits_for_space) source.space_ready_s = done.finished_s;
  drop(copy.peer, ref);
}

/// Whether a copy from or to the same home is in flight. A boundary and its gradient share one, so
/// the second has to wait for the first.
bool Engine::home_is_busy(BufferRef ref) const {
  return contains(table(ref.job).busy_homes, buffer_spec(ref).home);
}

/// Whether its home is busy; then the device watches for the end of that.
bool Engine::cannot_leave(DeviceId id, BufferRef ref, const Resident& entry) {
  if (!entry.dirty || !home_is_busy(ref)) return false;
  watch(ref.job, id);
  return true;
}

void Engine::write_back(DeviceId id, BufferRef ref, bool doom) {
  DeviceTable& device = table(id);
  Resident* entry = device.memory.find(ref);
  const BufferSpec& spec = buffer_spec(ref);
  assert(entry->dirty && entry->draining == 0 && entry->writer == 0 && spec.home != kNoHome);
  touch(id);
  table(ref.job).busy_homes.push_back(spec.home);
  device.memory.doom(*entry, doom);
  entry->draining = start({.kind = InFlight::Kind::copy,
                           .job = ref.job,
                           .device = id,
                           .unit = buffer_state(ref).last_unit,
                           .buffer = ref.buffer,
                           .direction = CopyDirection::to_host});
  ++device.num_transfers;
  device.overlap.copy_started(CopyDirection::to_host);
  device.counters.d2h_bytes += spec.home_bytes;
  out_->push_back(StartCopy{entry->draining, ref.job, id, CopyDirection::to_host,
                            table(ref.job).attempt, ref.buffer, entry->offset, spec.home,
                            spec.home_bytes});
}

void Engine::drop(DeviceId id, BufferRef ref) {
  touch(id);
  table(id).memory.release(ref);
  auto& holders = buffer_state(ref).holders;
  const auto holder = std::ranges::find(holders, id);
  if (holder != holders.end()) holders.erase(holder);
}

/// The buffer is dead: every copy goes, at once or when its transfer ends.
void Engine::drop_everywhere(BufferRef ref) {
  const auto holders = buffer_state(ref).holders;
  const bool settled = table(ref.job).in_flight == 0;
  for (DeviceId id : holders) {
    Resident* entry = table(id).memory.find(ref);
    if (settled) entry->leases = 0;
    if (entry->draining != 0) {
      table(id).memory.doom(*entry, true);
      touch(id);
    } else {
      assert(!entry->busy());
      drop(id, ref);
    }
  }
}

void Engine::copy_done(const InFlight& copy, const Done& done) {
  DeviceTable& device = table(copy.device);
  const BufferRef ref{copy.job, copy.buffer};
  Resident* entry = device.memory.find(ref);
  release_other_end(copy, done);
  --device.num_transfers;
  device.counters.copy_s += done.finished_s - done.started_s;
  device.counters.hidden_s +=
      device.overlap.copy_done(copy.direction, done.started_s, done.finished_s);
  for (ActionId id : device.running) {
    InFlight& op = in_flight_.at(id);
    if (std::ranges::find(op.after, done.id) != op.after.end()) {
      op.transfers_ready_s = std::max(op.transfers_ready_s, done.finished_s);
    }
  }
  if (copy.direction == CopyDirection::to_device) {
    entry->filling = 0;
    entry->dirty = copy.peer.valid();
    return;
  }
  entry->draining = 0;
  entry->dirty = false;
  buffer_state(ref).home_valid = true;
  if (device.waits_for_space) device.space_ready_s = done.finished_s;
  const bool leaves = entry->doomed && !entry->busy();
  device.memory.doom(*entry, false);
  if (leaves) drop(copy.device, ref);
  if (buffer_spec(ref).kind != BufferKind::sum) return;
  JobTable& job = table(ref.job);
  if (job.phase != JobPhase::running) return;
  if (--job.units[at(copy.unit)].drains_left == 0) unit_drained(ref.job, copy.unit);
}

}  // namespace spillway
