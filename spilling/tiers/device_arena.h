#pragma once

#include <memory>

#include "core/device/device.h"
#include "spillway/units.h"

namespace spillway {

/// The planned part of a device's memory, allocated once. The engine assigns its ranges.
class DeviceArena {
 public:
  /// Throws OutOfMemory if the device refuses its own budget.
  explicit DeviceArena(Device& device);

  /// The range [offset, offset + bytes). Throws std::out_of_range beyond the arena.
  std::byte* at(Bytes offset, Bytes bytes) const;
  Bytes size() const { return memory_->size(); }

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace spillway
