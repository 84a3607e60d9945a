#include "trainer/config/host_groups.h"

#include <fmt/format.h>

#include "core/base/divisor.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/config/batch_split.h"

namespace spillway {

std::optional<HostsConfig> HostsConfig::without_host_0() const {
  if (number == 0 || successors.empty() || size - 1 < min_size) return std::nullopt;
  HostsConfig next = *this;
  --next.number;
  --next.size;
  next.endpoint = successors.front();
  next.successors.erase(next.successors.begin());
  return next;
}

HostTeam team_of(const HostsConfig& hosts) {
  HostTeam team{.hosts = {},
                .number = hosts.number,
                .state = hosts.state,
                .network_bytes_per_s = static_cast<double>(hosts.network_bytes_per_s)};
  for (int host = 0; host < hosts.size; ++host) team.hosts.insert(team.hosts.end(), host);
  return team;
}

std::vector<int> groups_of_hosts(const TrainConfig& train, const HostTeam& team) {
  const auto shares = split_evenly(reduction_groups_of(train), static_cast<int>(team.hosts.size()));
  std::vector<int> groups(at(*team.hosts.rbegin() + 1));
  auto share = shares.begin();
  for (int host : team.hosts) groups[at(host)] = *share++;
  return groups;
}

int groups_of_host(const TrainConfig& train, const HostTeam& team) {
  return groups_of_hosts(train, team)[at(team.number)];
}

void require_endpoint(const HostsConfig& hosts) {
  if (hosts.size == 1 || !hosts.endpoint.empty()) return;
  throw ConfigError("hosts.endpoint", 0,
                    fmt::format("is missing, but there are {} hosts; set it to HOST:PORT, where "
                                "host 0 listens",
                                hosts.size));
}

}  // namespace spillway
