#pragma once

#include <limits>
#include <set>
#include <vector>

#include "spillway/session_config.h"
#include "spillway/train_config.h"

/// What follows from the hosts that train together.
namespace spillway {

/// The hosts that compute the steps of a trial.
struct HostTeam {
  std::set<int> hosts{0};
  int number = 0;  ///< of this host, which is one of them
  HostStateKind state = HostStateKind::replicated;
  /// What each sends to others, and receives at the same time.
  double network_bytes_per_s = static_cast<double>(HostsConfig().network_bytes_per_s);
  bool operator==(const HostTeam&) const = default;

  /// As if exchanges took no time: plans then do not cut models for them.
  void assume_fast_network() { network_bytes_per_s = std::numeric_limits<double>::infinity(); }
};
/// All hosts.
HostTeam team_of(const HostsConfig& hosts);

/// The reduction groups of each host by number, as even as possible; none for those outside of the
/// team. One host alone has all.
std::vector<int> groups_of_hosts(const TrainConfig& train, const HostTeam& team);
/// Those of this host.
int groups_of_host(const TrainConfig& train, const HostTeam& team);

/// Throws ConfigError (`hosts.endpoint`) if there are several hosts and no endpoint.
void require_endpoint(const HostsConfig& hosts);

/// What a ConfigError says of a field that HostsConfig::several() rules out.
inline constexpr const char* kNotWithHosts =
    "cannot be used with several hosts or hosts.start_size; leave it out";

}  // namespace spillway
