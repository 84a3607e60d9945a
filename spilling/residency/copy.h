#pragma once

#include <cstdint>

#include "spilling/residency/buffer.h"
#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {

enum class CopyDirection : std::uint8_t { to_device, to_host };

/// A copy of a buffer between a device and its home. `attempt` counts the dropped open steps of the
/// job.
struct StartCopy {
  ActionId id = 0;
  JobId job;
  DeviceId device;
  CopyDirection direction = CopyDirection::to_device;
  int attempt = 0;
  int buffer = 0;
  Bytes device_offset = 0, home = 0, bytes = 0;
  /// If valid, `device` loads from this device instead of the home, which is not valid.
  DeviceId peer = {};
  Bytes peer_offset = 0;
  bool is_shared = false;  ///< the peer keeps its copy
};

/// Which copy has ended.
struct CopyRoute {
  BufferRef buffer;
  DeviceId device;
  CopyDirection direction = CopyDirection::to_device;
  DeviceId peer = {};
  bool is_shared = false;
};

}  // namespace spillway
