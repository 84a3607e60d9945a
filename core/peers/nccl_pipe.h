#pragma once

#include <chrono>
#include <memory>

#include "core/peers/pipe.h"
#include "spillway/units.h"

namespace spillway {

/// One end of a pipe between GPUs.
struct NcclEnd {
  int gpu = 0;            ///< its index
  bool is_first = false;  ///< of exactly one of both ends
};

/// Smaller parts go through the pipe below.
inline constexpr Bytes kLeastOverNccl = 64_KiB;
/// GPU memory that a pipe takes besides that of NCCL: two areas for each way.
inline constexpr Bytes kNcclArea = 4_MiB;

/// A pipe whose large parts go from GPU to GPU by NCCL, each way with a communicator of its own;
/// they pass GPU memory in areas of kNcclArea, so that one is copied while another one travels.
/// `pipe` carries all else, and shows whether the other end is there: NCCL waits for one that is
/// lost. The other end does the same at the same time. Throws Error if the library or its memory is
/// missing, or the GPUs are not connected within `limit`; PipeBroken.
std::unique_ptr<Pipe> over_nccl(std::unique_ptr<Pipe> pipe, const NcclEnd& end,
                                std::chrono::milliseconds limit);

/// Loads NCCL, if it is not loaded. Throws Error.
void require_nccl();

}  // namespace spillway
