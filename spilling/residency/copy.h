#pragma once

#include <cstddef>
#include <cstdint>

#include "spilling/residency/buffer.h"
#include "spillway/ids.h"
#include "spillway/units.h"

namespace spillway {

enum class CopyDirection : std::uint8_t { to_device, to_host };

/// A queue of a device for copies, each in the order in which they start.
enum class CopyQueue : std::uint8_t { from_host, to_host, from_devices };
inline constexpr std::size_t kCopyQueues = 3;
inline CopyQueue copy_queue(CopyDirection direction, DeviceId peer) {
  if (direction == CopyDirection::to_host) return CopyQueue::to_host;
  return peer.valid() ? CopyQueue::from_devices : CopyQueue::from_host;
}

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
  CopyQueue queue() const { return copy_queue(direction, peer); }
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
