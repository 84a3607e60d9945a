#include "trainer/config/host_groups.h"

#include <fmt/format.h>

#include "core/base/divisor.h"
#include "spillway/error.h"
#include "trainer/config/batch_split.h"

namespace spillway {

std::vector<int> groups_of_hosts(const TrainConfig& train, const HostsConfig& hosts) {
  return split_evenly(reduction_groups_of(train), hosts.size);
}

int groups_of_host(const TrainConfig& train, const HostsConfig& hosts) {
  return groups_of_hosts(train, hosts).at(static_cast<std::size_t>(hosts.number));
}

void require_endpoint(const HostsConfig& hosts) {
  if (!hosts.several() || !hosts.endpoint.empty()) return;
  throw ConfigError("hosts.endpoint", 0,
                    fmt::format("is missing, but there are {} hosts; set it to HOST:PORT, where "
                                "host 0 listens",
                                hosts.size));
}

}  // namespace spillway
