#include <algorithm>
#include <limits>
#include <ranges>
#include <utility>

#include "scheduler/engine/engine.h"

namespace spillway {

Bytes Engine::reserved_workspace(DeviceId id) const {
  const DeviceTable& device = table(id);
  Bytes most = 0;
  if (device.current && state(*device.current).reserved) {
    most = spec(*device.current).workspace;
  }
  for (ActionId op : device.running) most = std::max(most, in_flight_.at(op).workspace);
  return most;
}

void Engine::note_use(DeviceId id) {
  DeviceTable& device = table(id);
  const Bytes used = copies(id).used();
  for (ActionId op : device.running) {
    in_flight_.at(op).used_high = std::max(in_flight_.at(op).used_high, used);
  }
  device.counters.peak_bytes = std::max(device.counters.peak_bytes, used);
}

/// Adds the buffers to what the request places or keeps.
void Engine::ask_for(Request& request, DeviceId id, JobId job,
                     const std::vector<int>& buffers) const {
  for (int b : buffers) {
    const BufferRef ref{job, b};
    (memory_.find(id, ref) ? request.keep : request.place).push_back(ref);
  }
}

/// Beside what ops have reserved. The weights of the next unit stay.
void Engine::complete(Request& request, DeviceId id) const {
  const DeviceTable& device = table(id);
  request.workspace = std::max(request.workspace, reserved_workspace(id));
  request.op_end = device.side;
  if (!device.next) return;
  request.spared_job = device.next->job;
  request.spared = spec(*device.next).weights;
}

/// Takes a request from complete().
Engine::Room Engine::make_room(DeviceId id, const Request& request) {
  DeviceTable& device = table(id);
  const auto [room, evictions] = memory_.make_room(*this, id, request);
  device.counters.evictions += static_cast<std::uint64_t>(evictions);
  if (room != Room::ready || evictions > 0) device.counters.short_of_room = true;
  if (room == Room::ready) {
    note_use(id);
    touch(id);
  }
  if (room == Room::wait) device.waits_for_space = true;
  return room == Room::never && !device.running.empty() ? Room::wait : room;
}

void Engine::evict_all(DeviceId id) {
  table(id).counters.evictions += static_cast<std::uint64_t>(memory_.evict_all(*this, id));
}

/// Weights leave with the unit that the program says, or if the track's next unit runs elsewhere.
/// So the program alone determines the bytes that a step moves, not the timing of transfers. Blocks
/// that jobs share stay: the next unit of another job may use them.
void Engine::drop_weights(DeviceId id, JobId job_id, int number) {
  const JobTable& job = table(job_id);
  const UnitSpec& unit = job.program->units[at(number)];
  const auto& track_units = job.program->track_units[at(unit.track)];
  const auto after = std::ranges::upper_bound(track_units, number);
  const bool goes_on = after != track_units.end() &&
                       (!job.units[at(*after)].claimed || job.units[at(*after)].device == id);
  for (int b : unit.weights) {
    const BufferRef ref{job_id, b};
    if (memory_.shared_number(ref) >= 0 || copies(id).find(ref)->busy()) continue;
    if (goes_on && std::ranges::count(unit.leaves, b) == 0) continue;
    if (is_used_again(id, ref)) ++table(id).counters.evictions;
    memory_.drop(*this, id, ref);
  }
}

/// True if a track will still read the copy on this device. Tracks on other devices have their own
/// copies.
bool Engine::is_used_again(DeviceId id, BufferRef ref) const {
  const JobTable& job = table(ref.job);
  return std::ranges::any_of(job.program->unit_users[at(ref.buffer)], [&](int u) {
    const TrackState& track = job.tracks[at(job.program->units[at(u)].track)];
    return !job.is_done(u) && (job.plan->roams() || track.device == id);
  });
}

/// The units of one kind with the same last shared block are a group. Not the first one: tied
/// parameters are numbered first.
int Engine::group_of(JobId id, const UnitSpec& unit) const {
  constexpr int kKinds = static_cast<int>(OpKind::evaluate) + 1;
  for (int b : unit.weights | std::views::reverse) {
    const int block = memory_.shared_number({id, b});
    if (block >= 0) return block * kKinds + static_cast<int>(unit.kind);
  }
  return -1;
}

/// Units of its job until a buffer is used again; ties: later virtual nodes are farther. A shared
/// block: of the job that uses it first.
double Engine::next_use(BufferRef ref) const {
  if (ref.job == kAllJobs) {
    double next = std::numeric_limits<double>::infinity();
    for (BufferRef user : memory_.users(ref.buffer)) next = std::min(next, next_use(user));
    return next;
  }
  const JobTable& job = table(ref.job);
  if (!job.program) return std::numeric_limits<double>::infinity();
  for (int u : job.program->unit_users[at(ref.buffer)]) {
    if (u == job.last_units[at(ref.buffer)] || job.has_started(u)) continue;
    const auto track = at(job.program->units[at(u)].track);
    const auto& track_units = job.program->track_units[track];
    const auto position = std::ranges::lower_bound(track_units, u) - track_units.begin();
    const auto cursor = static_cast<std::ptrdiff_t>(job.tracks[track].cursor);
    return static_cast<double>(position - cursor) + 1e-6 * static_cast<double>(ref.buffer);
  }
  return std::numeric_limits<double>::infinity();
}

bool Engine::has_several_readers(BufferRef ref) const {
  if (ref.job == kAllJobs) return false;
  const JobTable& job = table(ref.job);
  if (job.tracks.size() == 1) return false;
  int first = -1;  // track
  for (int u : job.program->unit_users[at(ref.buffer)]) {
    if (job.is_done(u)) continue;
    const int track = job.program->units[at(u)].track;
    if (first >= 0 && track != first) return true;
    first = track;
  }
  return false;
}

ActionId Engine::start_copy(StartCopy copy) {
  const JobTable& job = table(copy.job);
  DeviceTable& device = table(copy.device);
  DeviceCounters& counters = device.counters;
  const bool to_device = copy.direction == CopyDirection::to_device;
  copy.attempt = job.attempt;
  copy.id = start({.kind = InFlight::Kind::copy,
                   .job = copy.job,
                   .device = copy.device,
                   .unit = to_device ? 0 : job.last_units[at(copy.buffer)],
                   .buffer = copy.buffer,
                   .direction = copy.direction,
                   .peer = copy.peer,
                   .is_shared = copy.is_shared});
  device.overlap.copy_started(copy.queue());
  (to_device ? counters.h2d_bytes : counters.d2h_bytes) += copy.bytes;
  if (to_device) {
    ++counters.loads;
    if (!device.running.empty()) ++counters.prefetches;
    const BufferKind kind = job.plan->layout.buffers[at(copy.buffer)].kind;
    if (kind == BufferKind::weights) counters.h2d_weight_bytes += copy.bytes;
    if (memory_.shared_number({copy.job, copy.buffer}) >= 0)
      counters.h2d_shared_bytes += copy.bytes;
  }
  if (copy.peer.valid()) {
    ++counters.moves;
    table(copy.peer).counters.d2h_bytes += copy.bytes;  // over the links of both
  }
  out_->push_back(copy);
  return copy.id;
}

ActionId Engine::start_drop(DeviceId device, BufferRef graph) {
  const ActionId id = start(
      {.kind = InFlight::Kind::drop, .job = graph.job, .device = device, .buffer = graph.buffer});
  out_->push_back(DropGraph{id, graph.job, device, graph.buffer});
  return id;
}

/// The device waits until an action of the job ends, maybe one on another device.
void Engine::watch(JobId job, DeviceId watcher) {
  auto& watchers = table(job).watchers;
  if (std::ranges::find(watchers, watcher) == watchers.end()) watchers.push_back(watcher);
}

void Engine::copy_done(const InFlight& copy, const Done& done) {
  DeviceTable& device = table(copy.device);
  memory_.end_copy(*this, route_of(copy));
  device.counters.copy_s += done.finished_s - done.started_s;
  device.counters.hidden_s += device.overlap.copy_done(copy_queue(copy.direction, copy.peer),
                                                       done.started_s, done.finished_s);
  for (ActionId id : device.running) {
    InFlight& op = in_flight_.at(id);
    if (std::ranges::find(op.after, done.id) != op.after.end()) {
      op.transfers_ready_s = std::max(op.transfers_ready_s, done.finished_s);
    }
  }
  if (copy.peer.valid()) note_space(copy.peer, done.finished_s);
  if (copy.direction == CopyDirection::to_device) return;
  note_space(copy.device, done.finished_s);
  JobTable& job = table(copy.job);
  if (job.plan->layout.buffers[at(copy.buffer)].kind != BufferKind::sum) return;
  if (job.phase != JobPhase::running) return;
  const std::vector<int>& drains = job.program->units[at(copy.unit)].drains;
  if (std::ranges::find(drains, copy.buffer) == drains.end()) return;
  if (--job.units[at(copy.unit)].drains_left == 0) unit_drained(copy.job, copy.unit);
}

/// Bytes have left the device.
void Engine::note_space(DeviceId id, double now_s) {
  DeviceTable& device = table(id);
  if (device.state != DeviceState::gone && device.waits_for_space) device.space_ready_s = now_s;
}

}  // namespace spillway
