#pragma once

#include <c10/core/Device.h>

namespace spillway {

/// LibTorch's name of Device::gpu().
inline c10::Device torch_device(int gpu) {
  if (gpu < 0) return c10::Device(c10::DeviceType::CPU);
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu));
}

/// Loads LibTorch's GPU library if the machine has a GPU. LibTorch looks for it once, in its first
/// backward at the latest, and ignores what is loaded later. Does nothing if it cannot be loaded;
/// load_torch_gpu() then reports why.
void offer_torch_gpu();

/// Prepares LibTorch to compute on GPUs, also if the process has done so before. Idempotent;
/// thread-safe. Activations come from the meter of the allocating thread (MeterScope). Throws
/// ConfigError (`kind`) if LibTorch's GPU library cannot be loaded.
void load_torch_gpu();

/// Binds the calling thread to this GPU and stream (a cudaStream_t), and lets LibTorch allocate its
/// workspaces for them, which are not charged as activations. Throws Error with the reason.
void bind_torch_thread(int gpu, void* stream);

/// Frees the workspaces that LibTorch has for this stream, on which all work has ended. Call it
/// before the stream goes: LibTorch would keep them.
void free_torch_workspaces(void* stream);

}  // namespace spillway
