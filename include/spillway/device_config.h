#pragma once

#include <cstdint>

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
  /// Rate of copies in each direction; 0: as fast as memory. A copy between devices has the rate of
  /// the reader.
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

}  // namespace spillway
