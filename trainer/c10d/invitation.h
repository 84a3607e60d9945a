#pragma once

#include <string>

#include "spillway/session_config.h"

namespace spillway {

/// HostsConfig::invitation of host 0, for a host that knows nothing but the endpoint, and its token
/// if there is one. Waits for host 0. Throws ConfigError (`hosts.…`), Error.
std::string invitation_at(const HostsConfig& config);
/// The number of a host that has accepted it: each gets the next one, from 1 on. Throws Error.
int take_host_number(const HostsConfig& config);

}  // namespace spillway
