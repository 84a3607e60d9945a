#include "core/range_allocator.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>

namespace spillway {

RangeAllocator::RangeAllocator(Bytes capacity) : capacity_(capacity) {}

RangeAllocator::Range RangeAllocator::hole_before(std::size_t number) const {
  const Bytes begin = number == 0 ? 0 : used_ranges_[number - 1].end();
  const Bytes end = number == used_ranges_.size() ? capacity_ : used_ranges_[number].begin;
  return {begin, end - begin};
}

std::optional<Bytes> RangeAllocator::allocate(Bytes bytes, End end) {
  if (bytes > capacity_) return std::nullopt;  // also where rounding up would wrap
  bytes = round_up(std::max<Bytes>(bytes, 1), kAlignment);
  const std::size_t num_holes = used_ranges_.size() + 1;
  for (std::size_t i = 0; i < num_holes; ++i) {
    const std::size_t number = end == End::low ? i : num_holes - 1 - i;
    const Range hole = hole_before(number);
    if (hole.bytes < bytes) continue;
    const Bytes offset =
        end == End::low ? hole.begin : (hole.end() - bytes) / kAlignment * kAlignment;
    used_ranges_.insert(used_ranges_.begin() + static_cast<std::ptrdiff_t>(number),
                        {offset, bytes});
    used_ += bytes;
    return offset;
  }
  return std::nullopt;
}

void RangeAllocator::free(Bytes offset) {
  const auto range = std::ranges::lower_bound(used_ranges_, offset, {}, &Range::begin);
  assert(range != used_ranges_.end() && range->begin == offset);
  used_ -= range->bytes;
  used_ranges_.erase(range);
}

Bytes RangeAllocator::largest_hole() const {
  Bytes largest = 0;
  for (std::size_t i = 0; i <= used_ranges_.size(); ++i) {
    largest = std::max(largest, hole_before(i).bytes);
  }
  return largest;
}

void RangeAllocator::check_integrity() const {
  Bytes at = 0, total = 0;
  for (const Range& range : used_ranges_) {
    if (range.begin < at || range.bytes == 0) {
      throw std::logic_error("range allocator: ranges overlap");
    }
    at = range.end();
    total += range.bytes;
  }
  if (at > capacity_ || total != used_) throw std::logic_error("range allocator: wrong totals");
}

}  // namespace spillway
