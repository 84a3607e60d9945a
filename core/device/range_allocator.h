#pragma once

#include <optional>
#include <vector>

#include "spillway/units.h"

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
  /// Gives back the range at `offset` that allocate(bytes) returned.
  void free(Bytes offset, Bytes bytes);

  Bytes capacity() const { return capacity_; }
  Bytes used() const { return used_; }
  Bytes largest_hole() const;
  void check_integrity() const;

 private:
  struct Hole {
    Bytes begin = 0, end = 0;
    Bytes bytes() const { return end - begin; }
  };
  void join(std::size_t number);
  std::vector<Hole>::iterator place(std::size_t number) {
    return holes_.begin() + static_cast<std::ptrdiff_t>(number);
  }

  std::vector<Hole> holes_;  // ascending; used ranges lie between them
  Bytes capacity_, used_ = 0;
};

}  // namespace spillway
