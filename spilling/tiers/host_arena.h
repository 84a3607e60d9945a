#pragma once

#include <memory>

#include "core/base/mutex.h"
#include "core/device/device.h"
#include "spilling/tiers/store.h"
#include "spillway/units.h"

namespace spillway {

/// All homes: regions of exact size from one store under a hard budget. Thread-safe. Outlives its
/// regions.
class HostArena {
 public:
  /// A job's homes. Given back by the destructor.
  class Region {
   public:
    Region() = default;
    Region(Region&& other) noexcept;
    Region& operator=(Region&& other) noexcept;
    ~Region();
    std::byte* data() const { return memory_->data(); }
    Bytes size() const { return bytes_; }
    explicit operator bool() const { return memory_ != nullptr; }

   private:
    friend class HostArena;
    Region(HostArena& arena, Bytes bytes) : arena_(&arena), bytes_(bytes) {}
    HostArena* arena_ = nullptr;
    std::unique_ptr<DeviceMemory> memory_;
    Bytes bytes_ = 0;
  };

  /// `store` outlives the arena.
  HostArena(Bytes budget, Store& store) : budget_(budget), store_(store) {}

  /// Zeroed memory of exactly `bytes`, aligned to kPage. Throws OutOfMemory of the host tier beyond
  /// the budget, and what the store throws; it then takes nothing.
  Region reserve(Bytes bytes);
  /// Memory from elsewhere as a region of `bytes`, which count. Throws OutOfMemory of the host tier
  /// beyond the budget.
  Region adopt(std::shared_ptr<std::byte> memory, Bytes bytes);

  Bytes budget() const { return budget_; }
  Bytes in_use() const;
  Bytes peak() const;

 private:
  /// A region without memory.
  Region charge(Bytes bytes);
  void give_back(Bytes bytes) noexcept;

  const Bytes budget_;
  Store& store_;
  mutable Mutex mutex_;
  Bytes in_use_ SPILLWAY_GUARDED_BY(mutex_) = 0, peak_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway
