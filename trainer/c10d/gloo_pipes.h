#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/peers/pipe.h"
#include "trainer/c10d/rendezvous.h"

namespace spillway {

/// A group of hosts that connect to each other.
struct HostGroup {
  std::string name;  ///< differs from those of earlier groups at the rendezvous
  int number = 0;    ///< of this host
  int size = 1;
  std::string address = "127.0.0.1";  ///< where this host listens; the others reach it there
};

/// Connects this host to all others of the group, which do the same, by c10d's ProcessGroupGloo.
/// The result is indexed by number; null for this host. Throws Error if a host has not come within
/// `limit`, or if the environment asks Gloo for TLS, which PyTorch 2.11 does not carry out.
std::vector<std::unique_ptr<Pipe>> connect_by_gloo(const Rendezvous& rendezvous,
                                                   const HostGroup& group,
                                                   std::chrono::milliseconds limit);

}  // namespace spillway
