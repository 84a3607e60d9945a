#pragma once

#include <memory>

#include "core/base/mutex.h"
#include "core/device/device.h"
#include "core/device/memory_budget.h"
#include "core/device/range_allocator.h"

namespace spillway {

/// GPU memory that is allocated once and handed out in ranges. Thread-safe.
class GpuArena : public std::enable_shared_from_this<GpuArena> {
 public:
  /// Takes `budget->limit()` contiguous bytes of the GPU. Throws ConfigError (`memory`) if there
  /// are none.
  GpuArena(int gpu, std::shared_ptr<MemoryBudget> budget);
  ~GpuArena();
  GpuArena(const GpuArena&) = delete;
  GpuArena& operator=(const GpuArena&) = delete;

  /// The range keeps the arena alive. Throws OutOfMemory of the device tier.
  std::unique_ptr<DeviceMemory> allocate(Bytes bytes);

 private:
  class Range;
  Bytes place(Bytes bytes);
  void give_back(Bytes offset, Bytes bytes) noexcept;

  const int gpu_;
  const std::shared_ptr<MemoryBudget> budget_;
  Mutex mutex_;
  RangeAllocator ranges_ SPILLWAY_GUARDED_BY(mutex_);
  void* memory_ = nullptr;     // as CUDA gave it
  std::byte* data_ = nullptr;  // aligned to kPage
};

}  // namespace spillway
