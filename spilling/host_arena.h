#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "core/device.h"
#include "core/units.h"

namespace spillway {

/// The host tier: exact-size regions under a hard budget. Thread-safe. Outlives its regions.
class HostArena {
 public:
  using Allocate = std::function<std::unique_ptr<DeviceMemory>(Bytes)>;

  /// A job's homes. Given back by the destructor.
  class Region {
   public:
    Region() = default;
    Region(HostArena& arena, std::unique_ptr<DeviceMemory> memory, Bytes bytes);
    Region(Region&& other) noexcept;
    Region& operator=(Region&& other) noexcept;
    ~Region();
    std::byte* data() const { return memory_->data(); }
    Bytes size() const { return bytes_; }
    explicit operator bool() const { return memory_ != nullptr; }

   private:
    HostArena* arena_ = nullptr;
    std::unique_ptr<DeviceMemory> memory_;
    Bytes bytes_ = 0;
  };

  /// `allocate` makes memory that the devices' copy queues reach (Device::allocate_host).
  HostArena(Bytes budget, Allocate allocate);

  /// Zeroed memory of exactly `bytes`. Throws OutOfMemory beyond the budget.
  Region reserve(Bytes bytes);

  Bytes budget() const { return budget_; }
  Bytes in_use() const;
  Bytes peak() const;

 private:
  void give_back(Bytes bytes) noexcept;

  const Bytes budget_;
  const Allocate allocate_;
  mutable std::mutex mutex_;
  Bytes in_use_ = 0, peak_ = 0;  // under mutex_
};

}  // namespace spillway
