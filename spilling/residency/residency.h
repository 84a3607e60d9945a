#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>

#include "core/device/range_allocator.h"
#include "spilling/residency/buffer.h"
#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {

/// A copy of a buffer on a device.
///
/// Invariants: a leased, filling or draining copy keeps its range; a filling copy is not dirty; a
/// dirty copy is the original, and leaves the device only by a write back, or by a move to another
/// device, where it stays dirty. Other devices may have clean copies of it.
struct Resident {
  Bytes offset = 0, bytes = 0;
  std::int64_t version = 0;  ///< the step whose state it holds
  int leases = 0;            ///< ops and units that use it
  bool dirty = false;        ///< home is not valid
  bool evicting = false;     ///< leaves when its write back ends
  ActionId filling = 0;      ///< the load in flight, else 0
  ActionId draining = 0;     ///< the write back, or move away, in flight, else 0
  ActionId writer = 0;       ///< the op in flight that creates or changes it, else 0
  bool busy() const { return leases > 0 || filling != 0 || draining != 0; }
};

/// The copies on one device and their ranges in the planned part of its budget. Copyable, no I/O.
/// Pointers to copies are valid until the next place() or release().
class Residency {
 public:
  using Entries = boost::unordered_flat_map<BufferRef, Resident>;

  explicit Residency(Bytes budget);

  Resident* find(BufferRef ref);
  const Resident* find(BufferRef ref) const;
  /// Places a new copy; null if no hole is large enough. `ref` has no copy here.
  Resident* place(BufferRef ref, Bytes bytes, RangeAllocator::End end);
  /// Removes a copy that is not busy.
  void release(BufferRef ref);
  /// Sets whether a copy of this device leaves when its write back ends.
  void set_evicting(Resident& entry, bool leaves);

  Bytes budget() const { return space_.capacity(); }
  Bytes used() const { return space_.used(); }
  Bytes evicting_bytes() const { return evicting_bytes_; }
  const RangeAllocator& space() const { return space_; }
  /// In no particular order.
  const Entries& entries() const { return entries_; }
  /// Jobs with copies here, and their bytes; in no particular order.
  const boost::unordered_flat_map<JobId, Bytes, std::hash<JobId>>& jobs() const { return jobs_; }

  /// Throws std::logic_error if an invariant is broken.
  void check_integrity() const;

 private:
  Entries entries_;
  boost::unordered_flat_map<JobId, Bytes, std::hash<JobId>> jobs_;
  RangeAllocator space_;
  Bytes evicting_bytes_ = 0;
};

}  // namespace spillway
