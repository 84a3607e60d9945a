#pragma once

#include <optional>
#include <string>

#include "core/sealing/token.h"
#include "spillway/session_config.h"
#include "trainer/c10d/rendezvous.h"

/// Where hosts listen, and whether they may.
namespace spillway {

/// Where host 0 listens. Throws ConfigErrors (`hosts.…`).
Endpoint checked_endpoint(const HostsConfig& config);
/// The address at which other hosts reach this one. Sends nothing. Throws ConfigError
/// (`hosts.endpoint`).
std::string address_of_host(const HostsConfig& config);
/// Whether torchrun, which has started this host, has opened a store at the endpoint, and at all
/// other addresses of its machine.
bool has_store_of_torchrun(const std::string& endpoint);
/// Unless this host has a token or trusts the network, others may not reach `host`, where one
/// listens. Throws ConfigError (`hosts.token_file`).
void require_trust(const HostsConfig& config, const std::string& host);
/// Reads the file, if there is one. Throws ConfigError (`hosts.token_file`).
std::optional<Token> token_of(const HostsConfig& config);

}  // namespace spillway
