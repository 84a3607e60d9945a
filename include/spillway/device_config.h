#pragma once

#include <cstdint>
#include <string>

#include "spillway/units.h"

namespace spillway {

/// A failure that a CPU device imitates, for tests and rehearsals.
struct DeviceFault {
  /// How the device fails.
  enum class Kind : std::uint8_t {
    none,                       ///< not at all
    fail,                       ///< the device is lost
    hang,                       ///< its op does not end until the device is abandoned
    shrink                      ///< its budget halves
  } kind = Kind::none;          ///< how the device fails
  std::uint64_t after_ops = 0;  ///< number of ops that start before it fails
};

/// A device of a session.
struct DeviceConfig {
  std::string kind = "cpu";  ///< cpu | cuda
  Bytes memory = 0;          ///< most bytes that it may ever hold, activations included
  int index = 0;             ///< cuda only: number of the GPU, which several devices may share
  /// cpu only: imitated rate of copies in each direction; 0: as fast as memory. A copy between
  /// devices has the rate of the reader.
  Bytes link_bytes_per_s = 0;
  double slowdown = 1;  ///< cpu only: imitated factor by which ops take longer
  DeviceFault fault;    ///< cpu only: imitated failure
};

}  // namespace spillway
