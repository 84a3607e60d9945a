#pragma once

#include <memory>

#include "core/device/device.h"
#include "spillway/units.h"

namespace spillway {

/// A kind of storage for homes. Each implementation passes tests/conformance/store_conformance.h.
/// Thread-safe. Its memory may outlive it.
class Store {
 public:
  virtual ~Store() = default;
  /// Zeroed memory of exactly `bytes`, aligned to kPage, that host threads and the copy queues of
  /// every device can access. Its space is reserved, so that touching it cannot fail. Throws
  /// OutOfMemory and IoError.
  virtual std::unique_ptr<DeviceMemory> allocate(Bytes bytes) = 0;
};

}  // namespace spillway
