#include "spilling/residency/residency_manager.h"

#include <algorithm>
#include <cassert>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

namespace spillway {
namespace {

/// A set for many look-ups: a unit of many layers has hundreds of copies. `shared_or`: see
/// ResidencyManager.
class CopySet {
 public:
  template <typename SharedOr>
  CopySet(std::initializer_list<const ShortList<BufferRef>*> lists, const SharedOr& shared_or) {
    for (const auto* list : lists) {
      for (BufferRef ref : *list) refs_.push_back(shared_or(ref));
    }
    std::ranges::sort(refs_);
  }
  bool contains(BufferRef ref) const { return std::ranges::binary_search(refs_, ref); }

 private:
  std::vector<BufferRef> refs_;
};

/// Whether `pieces`, placed in order, and `workspace` fit beside the copies that stay.
template <typename MakeStays>
bool fits(const Residency& copies, const MakeStays& make_stays, std::span<const Bytes> pieces,
          RangeAllocator::End end, Bytes workspace) {
  Bytes wanted = 0;
  for (Bytes piece : pieces) wanted += round_up(std::max<Bytes>(piece, 1), kAlignment);
  // Fast path: one hole holds everything.
  if (copies.used() + wanted + workspace <= copies.budget() &&
      copies.space().largest_hole() >= wanted + kAlignment) {
    return true;
  }
  RangeAllocator space = copies.space();
  const auto stays = make_stays();
  for (const auto& item : copies.entries()) {
    if (!stays(item)) space.free(item.second.offset, item.second.bytes);
  }
  for (Bytes piece : pieces) {
    if (!space.allocate(piece, end)) return false;
  }
  return space.used() + workspace <= space.capacity();
}

}  // namespace

ResidencyManager::ResidencyManager(std::span<const Bytes> budgets) {
  for (Bytes budget : budgets) add_device(budget);
}

void ResidencyManager::forget(DeviceId id) {
  DeviceCopies& device = devices_[id.index()];
  for (const auto& [ref, entry] : device.copies.entries()) {
    auto& holders = state(ref).holders;
    holders.erase(std::remove(holders.begin(), holders.end(), id), holders.end());
    if (ref.job != kAllJobs) jobs_[ref.job.index()].graphs.erase(ref.buffer);
  }
  device = DeviceCopies{Residency(device.copies.budget())};
}

void ResidencyManager::take_homes(std::span<const SharedBlock> blocks) {
  shared_.take(blocks);
  blocks_.resize(at(shared_.size()));
}

void ResidencyManager::begin(JobId job, const std::vector<BufferSpec>& buffers,
                             std::int64_t version, std::span<const SharedBlock> blocks) {
  JobBuffers& table = jobs_[job.index()];
  forget_user(job);
  table.specs = buffers.data();
  table.version = version;
  table.buffers.assign(buffers.size(), BufferState{});
  assert(table.graphs.empty());
  table.shared.assign(blocks.empty() ? 0 : buffers.size(), -1);
  for (int b = 0; b < static_cast<int>(table.shared.size()); ++b) {
    const int shared = buffers[at(b)].shared;
    if (shared < 0) continue;
    const int number = table.shared[at(b)] = shared_.number(blocks[at(shared)]);
    BlockState& block = blocks_[at(number)];
    block.spec = buffers[at(b)];
    block.state.home_valid = true;
    block.users.push_back({job, b});
  }
}

/// The job no longer uses the blocks of its last program.
void ResidencyManager::forget_user(JobId job) {
  for (int number : jobs_[job.index()].shared) {
    if (number < 0) continue;
    std::erase_if(blocks_[at(number)].users, [&](BufferRef user) { return user.job == job; });
  }
}

void ResidencyManager::end(ResidencyOwner& owner, JobId job) {
  JobBuffers& table = jobs_[job.index()];
  forget_user(job);
  for (int number : std::exchange(table.shared, {})) {
    if (number >= 0 && users(number).empty()) drop_everywhere(owner, {kAllJobs, number});
  }
  table.buffers = {};
}

int ResidencyManager::shared_number(BufferRef ref) const {
  if (ref.job == kAllJobs) return ref.buffer;
  const std::vector<int>& shared = jobs_[ref.job.index()].shared;
  return shared.empty() ? -1 : shared[at(ref.buffer)];
}

bool ResidencyManager::holds(DeviceId id, BufferRef ref) const {
  const auto& holders = state(ref).holders;
  return std::ranges::find(holders, id) != holders.end();
}

bool ResidencyManager::has_original(BufferRef ref) const {
  return std::ranges::any_of(state(ref).holders, [&](DeviceId holder) {
    const Resident* entry = on(holder).find(ref);
    return entry->dirty || entry->filling != 0;
  });
}

bool ResidencyManager::has_only_copy(const ResidencyOwner& owner, DeviceId id, JobId job) const {
  return std::ranges::any_of(on(id).entries(), [&](const auto& item) {
    const BufferRef ref = item.first;
    return ref.job == job && item.second.dirty && !home_valid(ref) &&
           owner.next_use(ref) < std::numeric_limits<double>::infinity();
  });
}

ResidencyManager::RoomMade ResidencyManager::make_room(ResidencyOwner& owner, DeviceId id,
                                                       const Request& request) {
  const DeviceCopies& device = devices_[id.index()];
  const Residency& copies = device.copies;
  RoomMade made;
  for (;; ++made.evictions) {
    if (place_all(id, request)) return made;
    const Bytes coming = copies.evicting_bytes();
    Bytes wanted = request.workspace;
    for (BufferRef ref : request.place) wanted += spec(ref).bytes;
    const bool enough_comes = coming > 0 && copies.used() + wanted <= copies.budget() + coming;
    if (enough_comes || !evict_one(owner, id, request)) break;
  }
  const auto is_held_up = [&](const auto& item) {
    if (item.first.job == kAllJobs) return false;
    return cannot_leave(owner, id, item.first, item.second) || !owner.is_running(item.first.job);
  };
  const bool waits = device.num_transfers > 0 || std::ranges::any_of(copies.entries(), is_held_up);
  made.room = waits ? Room::wait : Room::never;
  return made;
}

bool ResidencyManager::place_all(DeviceId id, const Request& request) {
  Residency& copies = on(id);
  Bytes total = request.workspace + copies.used();
  for (BufferRef ref : request.place) total += spec(ref).bytes;
  if (total > copies.budget()) return false;
  std::size_t placed = 0;
  for (; placed < request.place.size(); ++placed) {
    const BufferRef ref = request.place[placed];
    Resident* entry = copies.place(shared_or(ref), spec(ref).bytes, request.end);
    if (!entry) break;
    entry->version = jobs_[ref.job.index()].version;
  }
  if (placed < request.place.size() || !op_area_fits(id, request) || !later_fits(id, request)) {
    for (std::size_t i = 0; i < placed; ++i) copies.release(shared_or(request.place[i]));
    return false;
  }
  for (BufferRef ref : request.place) state(ref).holders.push_back(id);
  return true;
}

bool ResidencyManager::op_area_fits(DeviceId id, const Request& request) const {
  if (request.op_area.empty()) return true;
  const auto shared = [this](BufferRef ref) { return shared_or(ref); };
  const auto stays = [&] {
    return [needed = CopySet({&request.keep, &request.place}, shared)](const auto& item) {
      return item.second.busy() || needed.contains(item.first);
    };
  };
  return fits(on(id), stays, request.op_area, request.op_end, request.workspace);
}

/// Whether a prefetched unit will find room beside its weights once everything else has left.
bool ResidencyManager::later_fits(DeviceId id, const Request& request) const {
  if (request.later.empty()) return true;
  const auto shared = [this](BufferRef ref) { return shared_or(ref); };
  const auto stays = [&] {
    return [needed = CopySet({&request.keep, &request.place}, shared)](const auto& item) {
      return needed.contains(item.first);
    };
  };
  return fits(on(id), stays, request.later, request.end, request.later_workspace);
}

/// Evicts the copy whose next use is farthest away (Belady's rule: the programs are known).
/// Source: Belady, "A study of replacement algorithms", 1966.
bool ResidencyManager::evict_one(ResidencyOwner& owner, DeviceId id, const Request& request) {
  std::optional<BufferRef> victim;
  double farthest = 0;
  const CopySet kept({&request.keep}, [this](BufferRef ref) { return shared_or(ref); });
  for (const auto& [ref, entry] : on(id).entries()) {
    if (entry.busy() || kept.contains(ref) || is_spared(request, ref)) continue;
    if (cannot_leave(owner, id, ref, entry)) continue;
    const double distance = owner.next_use(ref);
    if (!victim || distance > farthest || (distance == farthest && ref < *victim)) {
      victim = ref;
      farthest = distance;
    }
  }
  if (!victim) return false;
  if (spec(*victim).kind == BufferKind::graph) {
    free_graph(owner, id, *victim);
  } else if (on(id).find(*victim)->dirty &&
             owner.is_running(victim->job)) {  // a shared one is never dirty
    write_back(owner, id, *victim, true);
  } else {
    drop(owner, id, *victim);
  }
  return true;
}

bool ResidencyManager::is_spared(const Request& request, BufferRef ref) const {
  if (ref.job == request.spared_job) return std::ranges::binary_search(request.spared, ref.buffer);
  return ref.job == kAllJobs && std::ranges::any_of(request.spared, [&](int b) {
           return shared_number({request.spared_job, b}) == ref.buffer;
         });
}

int ResidencyManager::evict_all(ResidencyOwner& owner, DeviceId id) {
  int evictions = 0;
  while (evict_one(owner, id, {})) ++evictions;
  return evictions;
}

/// A shared block is loaded in the name of the job that asks.
void ResidencyManager::load(ResidencyOwner& owner, DeviceId id, BufferRef ref) {
  DeviceCopies& device = devices_[id.index()];
  Resident* entry = find(id, ref);
  const bool is_sum = spec(ref).kind == BufferKind::sum;
  owner.touch(id);
  StartCopy copy{.job = ref.job,
                 .device = id,
                 .buffer = ref.buffer,
                 .device_offset = entry->offset,
                 .home = is_sum ? spec(ref).kept_home : spec(ref).home,
                 .bytes = spec(ref).bytes,
                 .peer = home_valid(ref) ? DeviceId() : sender(owner, ref)};
  assert(copy.home != kNoHome);
  if (copy.peer.valid()) {
    copy.peer_offset = on(copy.peer).find(ref)->offset;
    copy.is_shared = owner.has_several_readers(ref);
  } else if (!is_sum) {
    jobs_[ref.job.index()].busy_homes.push_back(copy.home);
  }
  ++device.num_transfers;
  entry->filling = owner.start_copy(copy);
  if (!copy.peer.valid()) return;
  if (copy.is_shared) return lend(owner, copy.peer, ref);
  send_away(owner, copy.peer, ref, entry->filling);
}

/// A device with the original that can send it: if it moves, it must be unused. The invalid id:
/// there is none.
DeviceId ResidencyManager::sender(const ResidencyOwner& owner, BufferRef ref) const {
  const bool is_shared = owner.has_several_readers(ref);
  for (DeviceId holder : state(ref).holders) {
    const Resident* entry = on(holder).find(ref);
    const bool is_free = is_shared ? entry->draining == 0 : !entry->busy();
    if (entry->dirty && is_free && entry->writer == 0) return holder;
  }
  return DeviceId();
}

/// The source's side of a copy that it keeps.
void ResidencyManager::lend(ResidencyOwner& owner, DeviceId id, BufferRef ref) {
  DeviceCopies& device = devices_[id.index()];
  owner.touch(id);
  ++device.copies.find(ref)->leases;
  ++device.num_transfers;
}

/// The source's side of a move.
void ResidencyManager::send_away(ResidencyOwner& owner, DeviceId id, BufferRef ref, ActionId move) {
  DeviceCopies& device = devices_[id.index()];
  Resident* entry = device.copies.find(ref);
  owner.touch(id);
  entry->draining = move;
  device.copies.set_evicting(*entry, true);
  ++device.num_transfers;
}

/// Releases the other end of a copy that has ended or was lost: its home, or the device that it
/// comes from. Returns whether that device has to give its copy up.
bool ResidencyManager::release_other_end(ResidencyOwner& owner, const CopyRoute& copy) {
  if (!copy.peer.valid()) {
    if (spec(copy.buffer).kind == BufferKind::sum) return false;
    auto& busy_homes = jobs_[copy.buffer.job.index()].busy_homes;
    busy_homes.erase(std::ranges::find(busy_homes, spec(copy.buffer).home));
    return false;
  }
  DeviceCopies& source = devices_[copy.peer.index()];
  Resident* entry = source.copies.find(copy.buffer);
  if (!entry) return false;  // that device was lost
  owner.touch(copy.peer);
  --source.num_transfers;
  if (copy.is_shared) {
    if (entry->leases > 0) --entry->leases;  // else drop_all() has ended all leases
    return false;
  }
  entry->draining = 0;
  source.copies.set_evicting(*entry, false);
  return true;
}

/// Whether a copy from or to the same home is in flight. A boundary and its gradient share a home,
/// so one has to wait for the other.
bool ResidencyManager::home_is_busy(BufferRef ref) const {
  const auto& busy_homes = jobs_[ref.job.index()].busy_homes;
  return std::ranges::find(busy_homes, spec(ref).home) != busy_homes.end();
}

/// Whether a dirty copy has to wait for its busy home; the device then watches the job.
bool ResidencyManager::cannot_leave(ResidencyOwner& owner, DeviceId id, BufferRef ref,
                                    const Resident& entry) const {
  if (!entry.dirty || !home_is_busy(ref)) return false;  // a shared one is never dirty
  owner.watch(ref.job, id);
  return true;
}

void ResidencyManager::write_back(ResidencyOwner& owner, DeviceId id, BufferRef ref, bool leaves) {
  const BufferSpec& buffer = spec(ref);
  if (buffer.kind == BufferKind::sum) {
    return send_home(owner, id, ref, buffer.kept_home, buffer.bytes, leaves);
  }
  jobs_[ref.job.index()].busy_homes.push_back(buffer.home);
  send_home(owner, id, ref, buffer.home, buffer.home_bytes, leaves);
}

void ResidencyManager::finish_sum(ResidencyOwner& owner, DeviceId id, BufferRef ref) {
  send_home(owner, id, ref, spec(ref).home, spec(ref).home_bytes, /*leaves=*/true);
}

void ResidencyManager::send_home(ResidencyOwner& owner, DeviceId id, BufferRef ref, Bytes home,
                                 Bytes bytes, bool leaves) {
  DeviceCopies& device = devices_[id.index()];
  Resident* entry = device.copies.find(ref);
  assert(entry->dirty && entry->draining == 0 && entry->writer == 0);
  assert(home != kNoHome);
  owner.touch(id);
  device.copies.set_evicting(*entry, leaves);
  ++device.num_transfers;
  entry->draining = owner.start_copy({.job = ref.job,
                                      .device = id,
                                      .direction = CopyDirection::to_host,
                                      .buffer = ref.buffer,
                                      .device_offset = entry->offset,
                                      .home = home,
                                      .bytes = bytes});
}

bool ResidencyManager::fetch_homes(ResidencyOwner& owner, DeviceId id, JobId job,
                                   const std::vector<int>& buffers) {
  bool ready = true;
  for (int b : buffers) {
    const BufferRef ref{job, b};
    if (on(id).find(ref) || home_valid(ref) || sender(owner, ref).valid()) continue;
    ready = false;
    for (DeviceId holder : state(ref).holders) {
      const Resident* entry = on(holder).find(ref);
      if (entry->dirty && entry->draining == 0 && entry->writer == 0 && !home_is_busy(ref)) {
        write_back(owner, holder, ref, false);
      }
    }
  }
  return ready;
}

void ResidencyManager::drop(ResidencyOwner& owner, DeviceId id, BufferRef ref) {
  owner.touch(id);
  on(id).release(ref);
  if (ref.job != kAllJobs) {
    JobBuffers& job = jobs_[ref.job.index()];
    if (const auto graph = job.graphs.find(ref.buffer); graph != job.graphs.end()) {
      for (int b : graph->second) --find(id, {ref.job, b})->leases;
      job.graphs.erase(graph);
    }
  }
  auto& holders = state(ref).holders;
  const auto holder = std::ranges::find(holders, id);
  if (holder != holders.end()) holders.erase(holder);
}

void ResidencyManager::drop_everywhere(ResidencyOwner& owner, BufferRef ref) {
  const auto holders = state(ref).holders;
  for (DeviceId id : holders) {
    Resident* entry = on(id).find(ref);
    if (entry->draining != 0) {
      on(id).set_evicting(*entry, true);
      owner.touch(id);
    } else {
      assert(!entry->busy());
      drop(owner, id, ref);
    }
  }
}

void ResidencyManager::end_lease(ResidencyOwner& owner, DeviceId id, BufferRef ref) {
  Resident* const entry = find(id, ref);
  if (!entry) return;  // the device was lost
  --entry->leases;
  owner.touch(id);
}

void ResidencyManager::drop_all(ResidencyOwner& owner, JobId job) {
  const auto& buffers = jobs_[job.index()].buffers;
  for (int b = 0; b < static_cast<int>(buffers.size()); ++b) {
    if (shared_number({job, b}) >= 0) continue;
    for (DeviceId id : buffers[at(b)].holders) on(id).find({job, b})->leases = 0;
    drop_everywhere(owner, {job, b});
  }
}

void ResidencyManager::end_copy(ResidencyOwner& owner, const CopyRoute& copy) {
  DeviceCopies& device = devices_[copy.device.index()];
  if (release_other_end(owner, copy)) {
    on(copy.peer).find(copy.buffer)->dirty = false;
    drop(owner, copy.peer, copy.buffer);
  }
  Resident* entry = find(copy.device, copy.buffer);
  --device.num_transfers;
  if (copy.direction == CopyDirection::to_device) {
    const bool is_sum = spec(copy.buffer).kind == BufferKind::sum;
    entry->filling = 0;
    entry->dirty = is_sum || (copy.peer.valid() && !copy.is_shared);
    if (is_sum) state(copy.buffer).home_valid = false;  // its units add to it
    return;
  }
  entry->draining = 0;
  entry->dirty = false;
  set_home_valid(copy.buffer);
  const bool leaves = entry->evicting && !entry->busy();
  device.copies.set_evicting(*entry, false);
  if (leaves) drop(owner, copy.device, copy.buffer);
}

void ResidencyManager::end_lost_copy(ResidencyOwner& owner, const CopyRoute& copy) {
  release_other_end(owner, copy);  // its copy stays
}

void ResidencyManager::check_integrity() const {
  for (const DeviceCopies& device : devices_) {
    device.copies.check_integrity();
    if (device.num_transfers < 0) throw std::logic_error("residency: copies are miscounted");
  }
}

}  // namespace spillway
