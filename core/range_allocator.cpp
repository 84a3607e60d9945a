#include "core/range_allocator.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>

namespace spillway {
namespace {

/// Calls visit(offset, bytes) for every hole, ascending.
template <typename Visit>
void for_each_hole(const std::map<Bytes, Bytes>& used, Bytes capacity, const Visit& visit) {
  Bytes at = 0;
  for (const auto& [offset, bytes] : used) {
    if (offset > at) visit(at, offset - at);
    at = offset + bytes;
  }
  if (capacity > at) visit(at, capacity - at);
}

}  // namespace

RangeAllocator::RangeAllocator(Bytes capacity) : capacity_(capacity) {}

std::optional<Bytes> RangeAllocator::allocate(Bytes bytes, End end) {
  if (bytes > capacity_) return std::nullopt;  // also where rounding up would wrap
  bytes = round_up(std::max<Bytes>(bytes, 1), kAlignment);
  std::optional<Bytes> found;
  for_each_hole(used_ranges_, capacity_, [&](Bytes offset, Bytes hole) {
    if (hole < bytes || (found && end == End::low)) return;
    found = end == End::low ? offset : (offset + hole - bytes) / kAlignment * kAlignment;
  });
  if (found) {
    used_ranges_.emplace(*found, bytes);
    used_ += bytes;
  }
  return found;
}

void RangeAllocator::occupy(Bytes offset, Bytes bytes) {
  const bool is_new = used_ranges_.emplace(offset, bytes).second;
  assert(is_new && offset % kAlignment == 0 && bytes % kAlignment == 0 && bytes > 0);
  used_ += is_new ? bytes : 0;
}

void RangeAllocator::free(Bytes offset) {
  const auto range = used_ranges_.find(offset);
  assert(range != used_ranges_.end());
  used_ -= range->second;
  used_ranges_.erase(range);
}

Bytes RangeAllocator::largest_hole() const {
  Bytes largest = 0;
  for_each_hole(used_ranges_, capacity_,
                [&](Bytes, Bytes hole) { largest = std::max(largest, hole); });
  return largest;
}

void RangeAllocator::check_integrity() const {
  Bytes at = 0, total = 0;
  for (const auto& [offset, bytes] : used_ranges_) {
    if (offset < at || bytes == 0) throw std::logic_error("range allocator: ranges overlap");
    at = offset + bytes;
    total += bytes;
  }
  if (at > capacity_ || total != used_) throw std::logic_error("range allocator: wrong totals");
}

}  // namespace spillway
