#pragma once

#include <cstdint>

#include "core/peers/peers.h"
#include "trainer/runtime/op_runner.h"

namespace spillway {

/// Begins the transfers of a host op. Calls `ended` once all have ended, on a thread of the peers
/// or before it returns. `number`: of the job, the same on all hosts.
void exchange(Peers& peers, std::uint64_t number, const HostCall& call, OpRunner::Ended ended);

}  // namespace spillway
