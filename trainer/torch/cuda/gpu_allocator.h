#pragma once

namespace spillway {

/// Puts an allocator of ours before LibTorch's for GPUs, also if that is in use already. The
/// process is served by LibTorch's as ever, but for two kinds of threads:
/// - one with the meter of a GPU (MeterScope) allocates from that GPU's activation pool;
/// - any other that called allocate_as_own_gpu_thread() gets memory from CUDA, which goes back to
///   CUDA when it is freed. LibTorch's cache would keep it for a stream that may be gone.
/// Call it once. Thread-safe beside threads that allocate.
void install_gpu_allocator();

/// From now on, the calling thread is one of ours.
void allocate_as_own_gpu_thread();

}  // namespace spillway
