#pragma once

#include <chrono>
#include <memory>

#include "core/peers/pipe.h"
#include "spillway/units.h"

namespace spillway {

/// One end of a pipe between GPUs.
struct NcclEnd {
  int gpu = 0;            ///< its index; the other end has another GPU
  bool is_first = false;  ///< of exactly one of both ends
};

/// Smaller parts go through the pipe below.
inline constexpr Bytes kLeastOverNccl = 64_KiB;
/// Parts pass areas of this size: each way has two on the GPU, and two in page-locked host memory.
inline constexpr Bytes kNcclArea = 4_MiB;

/// A pipe whose large parts go from GPU to GPU by NCCL. `pipe` carries all else, and shows whether
/// the other end is there, because NCCL waits for one that is lost. The other end does the same at
/// the same time. Throws Error if this host lacks the library or memory; PipeBroken if the GPUs are
/// not connected within `limit`.
std::unique_ptr<Pipe> over_nccl(std::unique_ptr<Pipe> pipe, const NcclEnd& end,
                                std::chrono::milliseconds limit);

/// Loads NCCL, if it is not loaded. Throws Error.
void require_nccl();

}  // namespace spillway
