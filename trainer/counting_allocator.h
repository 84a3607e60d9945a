#pragma once

#include "core/device.h"

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
/// discharged wherever it is freed. Going over the meter's reservation throws OutOfMemory.
class MeterScope {
 public:
  explicit MeterScope(ActivationMeter& meter);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  ActivationMeter* previous_;
};

}  // namespace spillway
