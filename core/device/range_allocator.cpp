#include "core/device/range_allocator.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>

namespace spillway {
namespace {

Bytes size_of_range(Bytes bytes) { return round_up(std::max<Bytes>(bytes, 1), kAlignment); }

}  // namespace

RangeAllocator::RangeAllocator(Bytes capacity) : capacity_(capacity) {
  if (capacity > 0) holes_.push_back({0, capacity});
}

std::optional<Bytes> RangeAllocator::allocate(Bytes bytes, End end) {
  if (bytes > capacity_) return std::nullopt;  // also where rounding up would wrap
  bytes = size_of_range(bytes);
  for (std::size_t i = 0; i < holes_.size(); ++i) {
    const std::size_t number = end == End::low ? i : holes_.size() - 1 - i;
    const Hole hole = holes_[number];
    if (hole.bytes() < bytes) continue;
    const Bytes offset =
        end == End::low ? hole.begin : (hole.end - bytes) / kAlignment * kAlignment;
    const Hole behind{offset + bytes, hole.end};
    holes_[number].end = offset;
    if (behind.bytes() > 0) holes_.insert(place(number + 1), behind);
    if (holes_[number].bytes() == 0) holes_.erase(place(number));
    used_ += bytes;
    return offset;
  }
  return std::nullopt;
}

void RangeAllocator::free(Bytes offset, Bytes bytes) {
  bytes = size_of_range(bytes);
  const auto behind = std::ranges::lower_bound(holes_, offset, {}, &Hole::begin);
  const auto number = static_cast<std::size_t>(behind - holes_.begin());
  assert(number == holes_.size() || offset + bytes <= holes_[number].begin);
  assert(number == 0 || holes_[number - 1].end <= offset);
  holes_.insert(behind, {offset, offset + bytes});
  join(number);
  if (number > 0) join(number - 1);
  used_ -= bytes;
}

/// Merges a hole with the next one if they touch.
void RangeAllocator::join(std::size_t number) {
  if (number + 1 == holes_.size() || holes_[number].end < holes_[number + 1].begin) return;
  holes_[number].end = holes_[number + 1].end;
  holes_.erase(place(number + 1));
}

Bytes RangeAllocator::largest_hole() const {
  Bytes largest = 0;
  for (const Hole& hole : holes_) largest = std::max(largest, hole.bytes());
  return largest;
}

void RangeAllocator::check_integrity() const {
  Bytes at = 0, total = 0;
  for (const Hole& hole : holes_) {
    const bool apart = hole.begin > at || (hole.begin == 0 && total == 0);
    if (!apart || hole.begin >= hole.end) throw std::logic_error("range allocator: holes overlap");
    at = hole.end;
    total += hole.bytes();
  }
  if (at > capacity_ || total + used_ != capacity_) {
    throw std::logic_error("range allocator: wrong totals");
  }
}

}  // namespace spillway
