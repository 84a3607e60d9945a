#pragma once

#include "core/device/device.h"

namespace spillway {

/// LibTorch as Spillway needs it: one thread per op (CPU reductions change bits with the number of
/// threads) and a CPU allocator that charges the current thread's meter. Idempotent; call before
/// the first tensor.
void initialize_torch();

/// The calling thread's part of it, before its first op: LibTorch tells MKL the number of threads
/// on each thread by itself, and only when something there asks for it. Small matrix products do
/// not ask. Cheap to repeat.
void initialize_torch_thread();

/// Everything that LibTorch allocates on this thread during its life is charged to `meter`, and
/// discharged wherever it is freed. Going over the meter's reservation throws OutOfMemory. Of a
/// GPU's meter: what it allocates on GPUs; its few numbers on the host are nobody's.
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

/// Charged memory of the GPU whose meter is this thread's; null: there is none, so it is nobody's.
/// Throws OutOfMemory.
void* place_on_gpu(Bytes bytes);
/// Gives it back, from any thread. False: the memory is nobody's.
bool remove_from_gpu(void* block);

}  // namespace spillway
