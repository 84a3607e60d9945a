#pragma once

#include <atomic>

#include "spillway/units.h"

/// The functions of NCCL that core/peers/nccl/ calls, without a GPU: link fake_nccl.cpp beside
/// fake_cudart.cpp. A communicator of two is a socket, so both ends may be in one process or in
/// two. As with NCCL, what an end has begun waits on its stream, for ever if the other end does not
/// come, until it is aborted.
namespace spillway::testing {

struct FakeNccl {
  std::atomic<int> communicators = 0;
  std::atomic<Bytes> sent = 0;
  /// Calls that NCCL does not allow: of host memory, of two threads at once, before the call before
  /// has had its effect, on another GPU.
  std::atomic<int> misused = 0;
  std::atomic<int> receiving = 0;        ///< receives that have begun and wait for bytes
  std::atomic<bool> is_missing = false;  ///< the library cannot be loaded
  std::atomic<int> sends_left = -1;      ///< the last one reports an error; negative: none
};

/// Of this process. std::quick_exit() writes its last values to the file SPILLWAY_FAKE_NCCL_REPORT:
/// bytes sent, and calls that are not allowed.
FakeNccl& fake_nccl();

}  // namespace spillway::testing
