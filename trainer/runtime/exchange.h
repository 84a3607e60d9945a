#pragma once

#include <cstdint>
#include <functional>

#include "core/peers/peers.h"
#include "trainer/runtime/op_runner.h"

namespace spillway {

/// Begins the transfers of a host op. Calls `ended` once all have ended, on a thread of the peers
/// or before it returns, with the number of a host that was lost meanwhile, or -1. `number`: of the
/// job, the same on all hosts.
void exchange(Peers& peers, std::uint64_t number, const HostCall& call,
              std::function<void(int lost)> ended);

}  // namespace spillway
