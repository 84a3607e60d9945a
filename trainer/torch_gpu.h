#pragma once

#include <c10/core/Device.h>

namespace spillway {

/// LibTorch's name of Device::gpu().
inline c10::Device torch_device(int gpu) {
  if (gpu < 0) return c10::Device(c10::DeviceType::CPU);
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu));
}

/// LibTorch's part for GPUs is loaded with the first of them: programs without one start as fast as
/// before. Idempotent; thread-safe; before LibTorch is asked about GPUs. Activations then come from
/// the meter of the thread that asks (MeterScope), and kernels are those that always give the same
/// bits. Throws ConfigError (`kind`) where that part cannot be had.
void load_torch_gpu();

/// The calling thread computes on this GPU and stream (a cudaStream_t) from here on. Has LibTorch
/// take what it keeps for each of them, which is nobody's activation.
void bind_torch_thread(int gpu, void* stream);

}  // namespace spillway
