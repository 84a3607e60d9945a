#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "spillway/session_config.h"
#include "trainer/c10d/board.h"

namespace spillway {

/// Hosts that start together.
struct Meeting {
  /// A name that only these hosts get: torchrun may keep its store, with what lost hosts wrote,
  /// when it starts hosts again.
  std::string name;
  std::vector<int> hosts;  ///< ascending, 0 first
};

/// How long hosts wait for each other.
struct MeetingLimits {
  std::chrono::milliseconds answer;   ///< for what takes no time
  std::chrono::milliseconds arrival;  ///< host 0, for the others
};

/// Host 0 draws the name and confirms it to each of the others, so that none takes an old one. It
/// waits for all; once the time is over, `least` are enough. It refuses those with another backend,
/// and waits for others in their place. Throws Error if fewer have come; HostLost if host 0 has
/// not; ConfigError (`hosts.backend`) if it has refused this host.
Meeting meet(Board& board, const HostsConfig& config, int least, const MeetingLimits& limits);

/// One of these hosts with its number among them.
HostsConfig among(const std::set<int>& hosts, HostsConfig one);
/// One of the hosts at these endpoints, by number, for their next meeting. Some may be lost until
/// then.
HostsConfig next_meeting(const std::map<int, std::string>& endpoints, const HostsConfig& one);

}  // namespace spillway
