#pragma once

#include <memory>

#include "spilling/tiers/store.h"

namespace spillway {

/// Homes in host memory of the kind that the devices need.
class MemoryStore final : public Store {
 public:
  /// `device` outlives the store.
  explicit MemoryStore(Device& device) : device_(device) {}
  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override {
    return device_.allocate_host(bytes);
  }

 private:
  Device& device_;
};

}  // namespace spillway
