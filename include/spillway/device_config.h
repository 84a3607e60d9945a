#pragma once

#include <cstdint>
#include <string>

#include "spillway/units.h"

namespace spillway {

/// What a CPU device does on purpose when it has begun so many ops, to rehearse it.
struct DeviceFault {
  enum class Kind : std::uint8_t {
    none,
    fail,   ///< it is lost
    hang,   ///< its op does not end before the device is abandoned
    shrink  ///< from here on, half of its budget
  } kind = Kind::none;
  std::uint64_t after_ops = 0;
};

struct DeviceConfig {
  std::string kind = "cpu";  ///< cpu | cuda
  Bytes memory = 0;
  int index = 0;  ///< of the GPU, which several devices may share; cuda only
  // The rest is of cpu only.
  /// Each way, imitated by sleeping; 0: as fast as memory is. Between devices that of the reader.
  Bytes link_bytes_per_s = 0;
  double slowdown = 1;  ///< ops take so many times longer, imitated by sleeping
  DeviceFault fault;    ///< to rehearse it
};

}  // namespace spillway
