#pragma once

#include <compare>
#include <map>

#include "core/ids.h"
#include "core/range_allocator.h"
#include "scheduler/action.h"

namespace spillway {

/// A buffer of a job, wherever its bytes are.
struct BufferRef {
  JobId job;
  int buffer = 0;
  auto operator<=>(const BufferRef&) const = default;
};

/// A copy of a buffer on a device.
///
/// Invariants: a leased, filling or draining copy keeps its range; a filling copy is not dirty; a
/// dirty copy is the only valid one and leaves the device only by a write back.
struct Resident {
  Bytes offset = 0, bytes = 0;
  std::int64_t version = 0;  ///< the step whose state it holds
  int leases = 0;            ///< ops and units that use it
  bool dirty = false;        ///< home is not valid
  bool doomed = false;       ///< leaves when its write back ends
  ActionId filling = 0;      ///< the load in flight, else 0
  ActionId draining = 0;     ///< the write back in flight, else 0
  ActionId writer = 0;       ///< the op in flight that creates or changes it, else 0
  bool busy() const { return leases > 0 || filling != 0 || draining != 0; }
};

/// What lies where on one device: the planned part of its budget. Copyable, no I/O.
class Residency {
 public:
  explicit Residency(Bytes budget);

  Resident* find(BufferRef ref);
  const Resident* find(BufferRef ref) const;
  /// A range for a new copy; null where no hole is large enough. `ref` has no copy here.
  Resident* place(BufferRef ref, Bytes bytes, RangeAllocator::End end);
  /// Takes the copy away. It is not busy.
  void release(BufferRef ref);

  Bytes budget() const { return space_.capacity(); }
  Bytes used() const { return space_.used(); }
  const std::map<BufferRef, Resident>& entries() const { return entries_; }

  /// Throws std::logic_error where an invariant does not hold.
  void check_integrity() const;

 private:
  std::map<BufferRef, Resident> entries_;
  RangeAllocator space_;
};

}  // namespace spillway
