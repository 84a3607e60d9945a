#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "core/device/device.h"

namespace spillway {

/// Counts the ops of a CPU device and injects a fault at the chosen one. Used by one thread.
class FaultSwitch {
 public:
  FaultSwitch(std::string device, DeviceFault fault, std::stop_token abandoned)
      : device_(std::move(device)), fault_(fault), abandoned_(std::move(abandoned)) {}

  /// Counts an op. Returns whether the device shrinks now. Throws DeviceLost if the device is
  /// abandoned, fails, or hung until it was abandoned.
  bool begin_op();

 private:
  void hang() const;

  const std::string device_;
  const DeviceFault fault_;
  const std::stop_token abandoned_;
  std::uint64_t ops_ = 0;  ///< begun
};

}  // namespace spillway
