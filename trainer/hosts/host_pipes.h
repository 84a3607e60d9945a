#pragma once

#include <optional>
#include <string>

#include "core/peers/connect.h"
#include "core/sealing/token.h"
#include "spillway/session_config.h"
#include "trainer/c10d/board.h"

namespace spillway {

/// Hosts that have met.
struct MetHosts {
  HostsConfig config;   ///< of this host among them
  std::string prefix;   ///< of their keys
  std::string address;  ///< where this host listens
  std::optional<Token> token;
  std::optional<int> gpu;  ///< the first of this host
};

/// Connects this host to all others by the backend that its configuration names; the others do so
/// at the same time. Throws ConfigError (`hosts.backend`) if this host cannot use it, or another
/// one has another; Error.
Connections connect_hosts(const Rendezvous& rendezvous, Board& board, const MetHosts& hosts);

}  // namespace spillway
