#pragma once

#include <vector>

#include "spillway/session_config.h"
#include "spillway/train_config.h"

/// What follows from the hosts that train together.
namespace spillway {

/// The reduction groups of each host, in order: as even as possible. One host alone has all.
std::vector<int> groups_of_hosts(const TrainConfig& train, const HostsConfig& hosts);
/// Those of this host.
int groups_of_host(const TrainConfig& train, const HostsConfig& hosts);

/// Throws ConfigError (`hosts.endpoint`) if there are several hosts that cannot meet.
void require_endpoint(const HostsConfig& hosts);

}  // namespace spillway
