#include "spilling/residency/residency.h"

#include <cassert>
#include <stdexcept>

namespace spillway {

Residency::Residency(Bytes budget) : space_(budget) {}

Resident* Residency::find(BufferRef ref) {
  const auto entry = entries_.find(ref);
  return entry == entries_.end() ? nullptr : &entry->second;
}

const Resident* Residency::find(BufferRef ref) const {
  const auto entry = entries_.find(ref);
  return entry == entries_.end() ? nullptr : &entry->second;
}

Resident* Residency::place(BufferRef ref, Bytes bytes, RangeAllocator::End end) {
  const auto offset = space_.allocate(bytes, end);
  if (!offset) return nullptr;
  const auto [entry, is_new] = entries_.emplace(ref, Resident{.offset = *offset, .bytes = bytes});
  assert(is_new);
  jobs_[ref.job] += bytes;
  return &entry->second;
}

void Residency::release(BufferRef ref) {
  const auto entry = entries_.find(ref);
  assert(entry != entries_.end() && !entry->second.busy());
  set_evicting(entry->second, false);
  space_.free(entry->second.offset, entry->second.bytes);
  const auto job = jobs_.find(ref.job);
  job->second -= entry->second.bytes;
  if (job->second == 0) jobs_.erase(job);
  entries_.erase(entry);
}

void Residency::set_evicting(Resident& entry, bool leaves) {
  if (entry.evicting == leaves) return;
  entry.evicting = leaves;
  evicting_bytes_ += leaves ? entry.bytes : -entry.bytes;
}

void Residency::check_integrity() const {
  space_.check_integrity();
  Bytes total = 0, evicting = 0;
  for (const auto& [ref, entry] : entries_) {
    total += round_up(entry.bytes, kAlignment);
    if (entry.evicting) evicting += entry.bytes;
    if (entry.leases < 0) throw std::logic_error("residency: negative lease count");
    if (entry.filling != 0 && entry.dirty)
      throw std::logic_error("residency: loads over a dirty copy");
    if (entry.evicting && entry.draining == 0)
      throw std::logic_error("residency: evicting, not draining");
  }
  if (evicting != evicting_bytes_)
    throw std::logic_error("residency: evicting bytes are miscounted");
  if (total != space_.used()) throw std::logic_error("residency: ranges and entries differ");
}

}  // namespace spillway
