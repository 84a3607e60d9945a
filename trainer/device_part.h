#pragma once

#include <memory>
#include <string>

#include "spilling/copier.h"
#include "spilling/device_arena.h"
#include "trainer/watchdog.h"

namespace spillway {

/// What the shell has of a device. Of the shell's thread.
struct DevicePart {
  explicit DevicePart(Device& d) : device(&d), arena(std::make_unique<DeviceArena>(d)), copier(d) {}

  double copy_s(Bytes bytes) const {
    constexpr double kUnknownRate = 1e9;
    const auto rate = static_cast<double>(device->link_bytes_per_s());
    return static_cast<double>(bytes) / (rate > 0 ? rate : kUnknownRate);
  }

  Device* device;
  std::unique_ptr<DeviceArena> arena;  ///< given back once nothing can touch it any more
  Copier copier;
  std::unique_ptr<Watchdog> watchdog;
  int running = 0;       ///< actions that were started and not heard of, whatever was reported
  int expected = 0;      ///< of them, those that are not reported
  double planned_s = 0;  ///< what these take
  bool leaves = false;   ///< removed or lost
  bool gone = false;     ///< it has left
  std::string why;       ///< it leaves
};

}  // namespace spillway
