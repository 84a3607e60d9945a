#pragma once

namespace spillway {

/// LibTorch's part for GPUs is loaded with the first of them: programs without one start as fast as
/// before. Idempotent; thread-safe; before LibTorch is asked about GPUs. Activations then come from
/// the meter of the thread that asks (MeterScope), and kernels are those that always give the same
/// bits. Throws ConfigError (`kind`) where that part cannot be had.
void load_torch_gpu();

/// The calling thread computes on this GPU and stream (a cudaStream_t) from here on. Has LibTorch
/// take what it keeps for each of them, which is nobody's activation.
void bind_torch_thread(int gpu, void* stream);

}  // namespace spillway
