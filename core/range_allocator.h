#pragma once

#include <optional>
#include <vector>

#include "core/units.h"

namespace spillway {

/// Gives out ranges of an address space; pure bookkeeping, it owns no memory. Copyable.
/// Sizes are rounded up to kAlignment. Not thread-safe.
class RangeAllocator {
 public:
  explicit RangeAllocator(Bytes capacity);

  /// The lowest hole that holds `bytes`, from its low end (End::low), or the highest one, from its
  /// high end. Nothing where no hole is large enough. What runs and what is prefetched grow from
  /// opposite ends, so neither fragments the other.
  enum class End : bool { low, high };
  std::optional<Bytes> allocate(Bytes bytes, End end = End::low);
  /// Gives back a range that starts at `offset` as returned by allocate().
  void free(Bytes offset);

  Bytes capacity() const { return capacity_; }
  Bytes used() const { return used_; }
  Bytes largest_hole() const;
  void check_integrity() const;

 private:
  struct Range {
    Bytes begin, bytes;
    Bytes end() const { return begin + bytes; }
  };
  /// The hole in front of a used range, or, for their number, behind the last one.
  Range hole_before(std::size_t number) const;

  std::vector<Range> used_ranges_;  // ascending, disjoint
  Bytes capacity_, used_ = 0;
};

}  // namespace spillway
