#pragma once

#include <memory>

#include "core/device/device.h"
#include "spillway/units.h"

namespace spillway {

/// A place where homes lie. One body a kind of place; each passes
/// tests/conformance/store_conformance.h. Thread-safe. What it handed out may outlive it.
class Store {
 public:
  virtual ~Store() = default;
  /// Zeroed memory of exactly `bytes`, aligned to kPage, that host threads and the copy queues of
  /// every device reach; its place is taken, so that touching it cannot fail. Throws OutOfMemory
  /// where there is no room, and IoError.
  virtual std::unique_ptr<DeviceMemory> allocate(Bytes bytes) = 0;
};

}  // namespace spillway
