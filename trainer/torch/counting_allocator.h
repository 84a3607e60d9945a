#pragma once

#include "core/device/device.h"

namespace spillway {

/// Sets up a CPU allocator that charges the current thread's meter. Without a meter, LibTorch's
/// allocator before it serves the process as ever. Idempotent.
void initialize_torch();

/// While one of these lives, the C library keeps freed blocks, because operations allocate and free
/// the same large ones again and again. When the last one goes, the library has its usual settings
/// again and gives free memory back to the system.
class KeptMemory {
 public:
  KeptMemory();
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
};

/// While it lives, everything that LibTorch allocates on this thread is charged to `meter`, and
/// discharged wherever it is freed. Exceeding the meter's reservation throws OutOfMemory. The meter
/// of a GPU is charged for allocations on GPUs only, not for the few numbers on the host.
class MeterScope {
 public:
  explicit MeterScope(ActivationMeter& meter, bool of_gpu = false);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  ActivationMeter* previous_;
  ActivationMeter* previous_of_gpu_;
};

/// Allocates on the GPU of this thread's meter and charges it; null if the thread has no such
/// meter. Throws OutOfMemory.
void* place_on_gpu(Bytes bytes);
/// Frees such memory, on any thread. False if no meter was charged for it.
bool remove_from_gpu(void* block);

}  // namespace spillway
