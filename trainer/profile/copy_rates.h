#pragma once

#include "core/device/device.h"

namespace spillway {

/// How fast bytes come to a device and go, a second.
struct CopyRates {
  double h2d = 0, d2h = 0;
  double duplex = 0;  ///< both ways at once, summed
};

/// As the copies of a run: one queue each way, in blocks of 64 MiB, or of half of the device's
/// planned ranges. Nothing else may use the device meanwhile.
CopyRates measure_copies(Device& device);

}  // namespace spillway
