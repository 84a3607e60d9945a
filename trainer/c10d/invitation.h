#pragma once

#include <string>

namespace spillway {

/// What a host gets that knows nothing but the endpoint.
struct Invitation {
  int number = 0;        ///< of the host
  std::string document;  ///< HostsConfig::invitation of host 0
};
/// Asks for one; the next host gets the next number. Throws ConfigError (`hosts.endpoint`), Error.
Invitation ask_for_invitation(const std::string& endpoint, double timeout_s);

}  // namespace spillway
