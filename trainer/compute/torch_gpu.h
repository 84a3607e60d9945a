#pragma once

#include <c10/core/Device.h>

namespace spillway {

/// LibTorch's name of Device::gpu().
inline c10::Device torch_device(int gpu) {
  if (gpu < 0) return c10::Device(c10::DeviceType::CPU);
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu));
}

/// LibTorch looks for its part for GPUs once, in its first backward at the latest, and uses nothing
/// that is loaded afterwards. So it is loaded before, where the machine has a GPU: others start as
/// fast as without it. Does nothing where it cannot be had, which load_torch_gpu() tells.
void offer_torch_gpu();

/// LibTorch computes on GPUs from here on. Idempotent; thread-safe. Activations come from the meter
/// of the thread that asks (MeterScope), and kernels are those that always give the same bits.
/// Throws ConfigError (`kind`) where LibTorch's part for GPUs cannot be had.
void load_torch_gpu();

/// The calling thread computes on this GPU and stream (a cudaStream_t) from here on. Has LibTorch
/// take what it keeps for each of them, which is nobody's activation. Throws Error, with why.
void bind_torch_thread(int gpu, void* stream);

}  // namespace spillway
