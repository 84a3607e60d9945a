#include "scheduler/engine/dispatcher.h"

#include <iterator>
#include <utility>

namespace spillway {
namespace {

/// The device that was chosen for the track; the invalid id: any device may take it.
DeviceId made_for(const EngineTables& tables, const JobTable& job, int track) {
  const DeviceId id = job.places.empty() ? job.plan->device_of(track) : job.places[at(track)];
  return id.valid() && tables.can_run(job, id) ? id : DeviceId();
}

/// The device that may claim the track's next unit now; an invalid id: any device; nothing: none.
std::optional<DeviceId> claimant(const EngineTables& tables, const JobTable& job, int track,
                                 bool double_buffer) {
  if (job.phase != JobPhase::running || job.waits_for_places) return std::nullopt;
  const auto& units = job.program->track_units[at(track)];
  const TrackState& state = job.tracks[at(track)];
  if (state.cursor == units.size()) return std::nullopt;
  if (job.units[at(units[state.cursor])].waits_for > 0) return std::nullopt;
  if (state.cursor == 0) return made_for(tables, job, track);
  const int before = units[state.cursor - 1];
  if (job.is_done(before)) {
    return job.plan->roams() ? made_for(tables, job, track) : state.device;
  }
  // Its predecessor may still run: the queue of a device keeps the order.
  if (!double_buffer) return std::nullopt;
  const DeviceId runs_on = job.units[at(before)].device;
  if (job.plan->roams() && tables.of(runs_on).state != DeviceState::usable) {
    return std::nullopt;
  }
  return runs_on;
}

/// True if the device may take a track that is open to all. Each track of a job gets its own device
/// if there are enough.
bool may_take(const EngineTables& tables, DeviceId id, const ReadyTrack& track) {
  const JobTable& job = tables.of(track.job);
  if (!tables.can_run(job, id)) return false;
  return job.plan->roams() ||
         std::ranges::count(job.tracks, id, &TrackState::device) < job.tracks_a_device;
}

/// True if the device may take a ready track, open to all or not.
bool may_take(const EngineTables& tables, DeviceId id, const TrackState& track) {
  return track.only.valid() ? track.only == id : may_take(tables, id, *track.ready);
}

int next_unit(const EngineTables& tables, const ReadyTrack& ready) {
  const JobTable& job = tables.of(ready.job);
  return job.program->track_units[at(ready.track)][job.tracks[at(ready.track)].cursor];
}

Bytes resident_bytes(const EngineTables& tables, const ResidencyManager& memory, DeviceId id,
                     const ReadyTrack& ready) {
  const JobTable& job = tables.of(ready.job);
  const Program& program = *job.program;
  const UnitSpec& unit = program.units[at(next_unit(tables, ready))];
  Bytes bytes = 0;
  const auto count = [&](const std::vector<int>& buffers) {
    for (int b : buffers) {
      if (memory.holds(id, {ready.job, b})) bytes += job.plan->layout.buffers[at(b)].bytes;
    }
  };
  count(unit.weights);
  for (int i = 0; i < unit.num_ops; ++i) count(program.ops[at(unit.first_op + i)].inputs);
  return bytes;
}

/// True if another device may take this device's next unit: nothing of it has been loaded, its
/// track is not bound to a device, and its predecessor has ended.
bool may_be_stolen(const EngineTables& tables, const ResidencyManager& memory, DeviceId id) {
  const DeviceTable& owner = tables.of(id);
  if (!owner.next) return false;
  const UnitRef unit = *owner.next;
  const JobTable& job = tables.of(unit.job);
  if (!job.plan->roams() || made_for(tables, job, 0).valid()) return false;
  const auto& track_units = job.program->track_units[0];
  const auto next = std::ranges::lower_bound(track_units, unit.unit);
  return (next == track_units.begin() || job.is_done(*std::prev(next))) &&
         std::ranges::none_of(tables.spec(unit).weights, [&](int b) {
           return memory.on(id).find({unit.job, b}) != nullptr;
         });
}

/// True if neither the device's unit nor another of its group has reserved memory.
bool may_be_overtaken(const EngineTables& tables, const DeviceTable& device) {
  if (!device.current || device.group < 0 || device.group_reserved) return false;
  const UnitState& unit = tables.state(*device.current);
  return !unit.reserved && unit.group == device.group;
}

/// Calls `visit(track, its next unit)` for the ready tracks of all jobs that share the first shared
/// block of `unit`: all its blocks have the same users, unless models differ.
template <typename Visit>
void for_each_sharing(const EngineTables& tables, const ResidencyManager& memory, DeviceId id,
                      UnitRef unit, const Visit& visit) {
  for (int b : tables.spec(unit).weights) {
    const int block = memory.shared_number({unit.job, b});
    if (block < 0) continue;
    for (BufferRef user : memory.users(block)) {
      for (const TrackState& track : tables.of(user.job).tracks) {
        if (!track.grouped || !may_take(tables, id, track)) continue;
        visit(*track.ready, next_unit(tables, *track.ready));
      }
    }
    return;
  }
}

}  // namespace

Dispatcher::Dispatcher(const EngineTables& tables, const ResidencyManager& memory,
                       std::shared_ptr<const Policy> policy, bool double_buffer)
    : policy_(std::move(policy)),
      double_buffer_(double_buffer),
      ready_(tables.devices.size()),
      to_drive_(tables.devices.size()),
      to_prefetch_(tables.devices.size()),
      idle_(tables.devices.size()),
      wants_current_(tables.devices.size()),
      wants_next_(tables.devices.size()),
      stealable_(tables.devices.size()) {
  for (std::size_t d = 0; d < tables.devices.size(); ++d) note_state(tables, memory, DeviceId(d));
}

void Dispatcher::add_device() {
  ready_.add_device();
  for (DeviceSet* set :
       {&to_drive_, &to_prefetch_, &idle_, &wants_current_, &wants_next_, &stealable_}) {
    set->grow(ready_.num_devices());
  }
}

void Dispatcher::touch(DeviceId id) {
  to_drive_.set(id, true);
  to_prefetch_.set(id, true);
}

void Dispatcher::note_state(const EngineTables& tables, const ResidencyManager& memory,
                            DeviceId id) {
  const DeviceTable& device = tables.of(id);
  const bool idle = device.running.empty();
  const bool gone = device.state == DeviceState::gone;
  idle_.set(id, idle);
  const bool is_free = !device.current && !device.next && (double_buffer_ || idle);
  wants_current_.set(id, !gone && (is_free || may_be_overtaken(tables, device)));
  wants_next_.set(id, double_buffer_ && device.current && !device.next &&
                          tables.state(*device.current).reserved);
  stealable_.set(id, may_be_stolen(tables, memory, id));
}

double Dispatcher::priority(const EngineTables& tables, JobId id, int track, int unit) const {
  const JobTable& job = tables.of(id);
  return policy_->priority({.job = id,
                            .track = track,
                            .unit = unit,
                            .remaining_s = job.remaining_s(),
                            .step = job.step,
                            .last_served = job.last_served});
}

void Dispatcher::rank(EngineTables& tables, JobId id, int track) {
  JobTable& job = tables.of(id);
  TrackState& state = job.tracks[at(track)];
  if (state.ready) ready_.remove(*state.ready, state.only);
  if (state.grouped) ready_.remove(state.group, *state.grouped);
  state.ready.reset();
  state.grouped.reset();
  const auto only = claimant(tables, job, track, double_buffer_);
  if (!only) return;
  const int unit = job.program->track_units[at(track)][state.cursor];
  state.ready = ReadyTrack{priority(tables, id, track, unit), id, track};
  state.only = *only;
  ready_.add(*state.ready, state.only);
  state.group = job.units[at(unit)].group;
  if (state.group >= 0) {
    state.grouped = GroupedTrack{job.last_served, id, track};
    ready_.add(state.group, *state.grouped);
  }
  if (only->valid()) touch(*only);
}

void Dispatcher::rank(EngineTables& tables, JobId id) {
  const auto tracks = static_cast<int>(tables.of(id).tracks.size());
  for (int l = 0; l < tracks; ++l) rank(tables, id, l);
}

/// The track with the most resident bytes among those with the priority of `first`.
ReadyTrack Dispatcher::prefer_resident(const EngineTables& tables, const ResidencyManager& memory,
                                       DeviceId id, const ReadyTrack& first) const {
  ReadyTrack best = first;
  Bytes most = resident_bytes(tables, memory, id, first);
  for (const auto& [job, bytes_of_job] : memory.on(id).jobs()) {
    if (job == kAllJobs || bytes_of_job < most) continue;
    for (const TrackState& track : tables.of(job).tracks) {
      if (!track.ready || track.ready->priority != first.priority) continue;
      if (!may_take(tables, id, track)) continue;
      const Bytes bytes = resident_bytes(tables, memory, id, *track.ready);
      if (bytes < most || (bytes == most && !(*track.ready < best))) continue;
      best = *track.ready;
      most = bytes;
    }
  }
  return best;
}

std::optional<ReadyTrack> Dispatcher::of_same_group(const EngineTables& tables, DeviceId id) const {
  const DeviceTable& device = tables.of(id);
  const auto track_of = [&](const GroupedTrack& grouped) -> const TrackState& {
    return tables.of(grouped.job).tracks[at(grouped.track)];
  };
  const auto found = ready_.first(
      device.group, device.group_begin,
      [&](const GroupedTrack& grouped) { return may_take(tables, id, track_of(grouped)); });
  if (!found) return std::nullopt;
  return track_of(*found).ready;
}

/// Of the jobs that share blocks with that of `first`: the one whose next unit comes first in its
/// program, so that they meet. Otherwise one that was not ready in time would stay behind and need
/// every block alone.
ReadyTrack Dispatcher::furthest_behind(const EngineTables& tables, const ResidencyManager& memory,
                                       DeviceId id, const ReadyTrack& first) const {
  const UnitRef next{first.job, next_unit(tables, first)};
  ReadyTrack best = first;
  int least = next.unit;
  for_each_sharing(tables, memory, id, next, [&](const ReadyTrack& track, int unit) {
    if (unit > least || (unit == least && !(track < best))) return;
    best = track;
    least = unit;
  });
  return best;
}

bool Dispatcher::is_overtaken(EngineTables& tables, const ResidencyManager& memory,
                              DeviceId id) const {
  DeviceTable& device = tables.of(id);
  if (device.compared == readiness_ || !may_be_overtaken(tables, device)) return false;
  device.compared = readiness_;
  bool found = false;
  for_each_sharing(tables, memory, id, *device.current, [&](const ReadyTrack&, int unit) {
    found = found || unit < device.current->unit;
  });
  return found;
}

std::optional<UnitRef> Dispatcher::claim(EngineTables& tables, const ResidencyManager& memory,
                                         DeviceId id) {
  DeviceTable& device = tables.of(id);
  if (device.tried == readiness_) return std::nullopt;
  std::optional<ReadyTrack> best = of_same_group(tables, id);
  const bool begins_group = !best;
  if (!best) best = ready_.first(id, [&](const ReadyTrack& l) { return may_take(tables, id, l); });
  if (!best) {
    device.tried = readiness_;
    return std::nullopt;
  }
  if (begins_group) {
    best = prefer_resident(tables, memory, id, *best);
    best = furthest_behind(tables, memory, id, *best);
  }
  const UnitRef unit{best->job, next_unit(tables, *best)};
  claim(tables, id, unit);
  if (begins_group) {
    device.group = tables.state(unit).group;
    device.group_begin = claims_;
    device.group_reserved = false;
  }
  return unit;
}

void Dispatcher::claim(EngineTables& tables, DeviceId id, UnitRef unit) {
  JobTable& job = tables.of(unit.job);
  const UnitSpec& spec = tables.spec(unit);
  tables.state(unit).claimed = true;
  tables.state(unit).device = id;
  TrackState& track = job.tracks[at(spec.track)];
  ++track.cursor;
  track.device = id;
  job.unclaimed_s -= spec.cost_s;
  job.last_served = ++claims_;
  ++readiness_;  // its successor may be chosen now, for this device
  rank(tables, unit.job);
}

std::optional<UnitRef> Dispatcher::steal(EngineTables& tables, const ResidencyManager& memory,
                                         DeviceId thief) {
  for (std::size_t from = 0;;) {
    const DeviceId id = stealable_.next(from);
    if (!id.valid()) return std::nullopt;
    from = id.index() + 1;
    const UnitRef unit = *tables.of(id).next;
    if (!tables.can_run(tables.of(unit.job), thief)) continue;
    tables.of(id).next.reset();
    note_state(tables, memory, id);
    touch(id);
    tables.state(unit).device = thief;
    rank(tables, unit.job, tables.spec(unit).track);
    return unit;
  }
}

}  // namespace spillway
