#pragma once

#include <memory>
#include <string>

#include "core/base/mutex.h"
#include "core/device/activation_counter.h"
#include "core/device/range_allocator.h"

namespace spillway {

/// The meter of a device with a dedicated activation pool. Thread-safe.
class ActivationPool final : public ActivationCounter {
 public:
  ActivationPool(const std::string& owner, std::unique_ptr<DeviceMemory> memory)
      : ActivationCounter(owner), memory_(std::move(memory)), ranges_(memory_->size()) {}

  void* place(Bytes bytes) override;
  void remove(void* block, Bytes bytes) noexcept override;

 private:
  const std::unique_ptr<DeviceMemory> memory_;
  Mutex mutex_;
  RangeAllocator ranges_ SPILLWAY_GUARDED_BY(mutex_);
};

/// The meter of device `name`. `pool` is its dedicated activation pool; null: the system allocates
/// activations.
std::unique_ptr<ActivationMeter> make_activation_meter(const std::string& name,
                                                       std::unique_ptr<DeviceMemory> pool);

}  // namespace spillway
