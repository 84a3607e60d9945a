#include "scheduler/residency.h"

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
  ++jobs_[ref.job];
  return &entry->second;
}

void Residency::release(BufferRef ref) {
  const auto entry = entries_.find(ref);
  assert(entry != entries_.end() && !entry->second.busy());
  space_.free(entry->second.offset);
  entries_.erase(entry);
  const auto job = jobs_.find(ref.job);
  if (--job->second == 0) jobs_.erase(job);
}

void Residency::check_integrity() const {
  space_.check_integrity();
  Bytes total = 0;
  for (const auto& [ref, entry] : entries_) {
    total += round_up(entry.bytes, kAlignment);
    if (entry.leases < 0) throw std::logic_error("residency: negative lease count");
    if (entry.filling != 0 && entry.dirty)
      throw std::logic_error("residency: loads over a dirty copy");
    if (entry.doomed && entry.draining == 0)
      throw std::logic_error("residency: doomed, not draining");
  }
  if (total != space_.used()) throw std::logic_error("residency: ranges and entries differ");
}

}  // namespace spillway
