#pragma once

#include "core/device/device.h"

namespace spillway {

/// Bytes per second to and from a device.
struct CopyRates {
  double h2d = 0, d2h = 0;
  double duplex = 0;  ///< both ways at once, summed
};

/// Measures copies as in a run: one queue per direction, in blocks of 64 MiB or half of the
/// device's planned ranges. Nothing else may use the device meanwhile.
CopyRates measure_copies(Device& device);

/// Bytes per second of copies from one device to another, in blocks of the same size.
double measure_copies(Device& from, Device& to);

}  // namespace spillway
