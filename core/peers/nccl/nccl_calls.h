#pragma once

#include <nccl.h>

namespace spillway {

/// The functions of NCCL that are used here, with the types that its header declares.
struct NcclCalls {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init = nullptr;
  decltype(&ncclCommGetAsyncError) comm_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGetErrorString) text_of = nullptr;
};

/// Of the library that LibTorch's GPU part brings. A program loads it only if it needs it, because
/// of its size. Throws Error if there is none.
const NcclCalls& nccl_calls();

}  // namespace spillway
