#pragma once

#include <string>

#include "spillway/session_config.h"

namespace spillway {

class Board;

/// The remedy where training together has ended.
inline constexpr const char* kRestart = "start all hosts again with resume: auto";

/// Why no other host goes on with a run.
inline constexpr const char* kHost0Stopped = "host 0 has stopped; its own output says why";

/// HostsConfig::invitation of host 0, for a host that knows nothing but the endpoint, and its token
/// if there is one. Waits for host 0. Throws ConfigError (`hosts.…`), Error.
std::string invitation_at(const HostsConfig& config);
/// The place of a host that has accepted it: the next number from 1 on, or if hosts train already,
/// one among those that meet again for its sake. Throws Error if there is none.
HostsConfig take_place(const HostsConfig& config);

/// Host 0 lets hosts read its invitation.
void write_invitation(Board& board, const std::string& text);

}  // namespace spillway
