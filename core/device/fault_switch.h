#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "core/device/device.h"

namespace spillway {

/// Counts the ops of a CPU device and makes it misbehave at the chosen one. Of one thread.
class FaultSwitch {
 public:
  FaultSwitch(std::string device, DeviceFault fault, std::stop_token abandoned)
      : device_(std::move(device)), fault_(fault), abandoned_(std::move(abandoned)) {}

  /// One op more. Returns whether the device shrinks here. Throws DeviceLost where it is abandoned,
  /// fails, or has hung until it was abandoned.
  bool begin_op();

 private:
  void hang() const;

  const std::string device_;
  const DeviceFault fault_;
  const std::stop_token abandoned_;
  std::uint64_t ops_ = 0;  ///< begun
};

}  // namespace spillway
