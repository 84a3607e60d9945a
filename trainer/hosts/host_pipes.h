#pragma once

#include <optional>
#include <string>

#include "core/peers/connect.h"
#include "core/sealing/token.h"
#include "spillway/session_config.h"
#include "trainer/c10d/rendezvous.h"

namespace spillway {

/// Hosts that have met.
struct MetHosts {
  HostsConfig config;   ///< of this host among them
  std::string prefix;   ///< of their keys
  std::string address;  ///< where this host listens
  std::optional<Token> token;
  std::optional<int> gpu;  ///< the first of this host
};

/// Connects this host to all others by its backend; the others do so at the same time. Throws
/// ConfigError (`hosts.backend`) if this host cannot use it; Error.
Connections connect_hosts(const Rendezvous& rendezvous, const MetHosts& hosts);

}  // namespace spillway
