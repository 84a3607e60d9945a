#pragma once

#include <optional>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// Allocates ranges of an address space. It owns no memory. Copyable, not thread-safe. Sizes are
/// rounded up to kAlignment.
class RangeAllocator {
 public:
  explicit RangeAllocator(Bytes capacity);

  /// Takes the low end of the lowest hole that holds `bytes` (End::low), or the high end of the
  /// highest one. Nothing if no hole is large enough. Running and prefetched units allocate from
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
