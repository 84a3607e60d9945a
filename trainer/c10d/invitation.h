#pragma once

#include <string>

namespace spillway {

/// HostsConfig::invitation of host 0, for a host that knows nothing but the endpoint. Waits for
/// host 0. Throws ConfigError (`hosts.endpoint`), Error.
std::string invitation_at(const std::string& endpoint, double timeout_s);
/// The number of a host that has accepted it: each gets the next one, from 1 on. Throws Error.
int take_host_number(const std::string& endpoint, double timeout_s);

}  // namespace spillway
