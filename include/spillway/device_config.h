#pragma once

#include <cstdint>
#include <vector>

#include "spillway/choices.h"
#include "spillway/units.h"

namespace spillway {

/// A failure that a CPU device imitates.
struct DeviceFault {
  using Kind = FaultKind;       ///< how a device fails
  Kind kind = Kind::none;       ///< how the device fails
  std::uint64_t after_ops = 0;  ///< number of ops that start before it fails
  bool operator==(const DeviceFault&) const = default;
};

/// Other hardware that a CPU device imitates, for tests and rehearsals.
struct DeviceImitation {
  /// Rate of copies in each direction; 0: as fast as memory. A copy between devices that no link
  /// connects (LinkConfig) has the rate of the reader.
  Bytes link_bytes_per_s = 0;
  double slowdown = 1;  ///< factor by which ops take longer
  DeviceFault fault;    ///< failure
  bool operator==(const DeviceImitation&) const = default;
};

/// A device of a session.
struct DeviceConfig {
  DeviceKind kind = DeviceKind::cpu;  ///< what computes
  Bytes memory = 0;                   ///< most bytes that it may ever hold, activations included
  int index = 0;            ///< cuda only: number of the GPU, which several devices may share
  DeviceImitation imitate;  ///< cpu only: other hardware, for tests and rehearsals
};

/// A link between devices. Copies between two of them take it instead of the link between the
/// reader and the host. CPU devices imitate it; on GPUs it only tells the planner what to expect.
struct LinkConfig {
  /// Numbers of at least two devices, each pair of which is connected. The first link that connects
  /// two devices counts.
  std::vector<int> between;
  Bytes bytes_per_s = 0;  ///< rate, above 0
  double latency_s = 0;   ///< from the end of sending to the arrival of a copy
  /// All copies take turns. Otherwise each device has the rate to each other one, all at once.
  bool shared = false;
  bool operator==(const LinkConfig&) const = default;
};

}  // namespace spillway
