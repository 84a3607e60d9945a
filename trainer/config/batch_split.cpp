#include "trainer/config/batch_split.h"

#include "core/base/divisor.h"

namespace spillway {
namespace {

int default_divisor(std::int64_t number) { return static_cast<int>(largest_divisor(number, 8)); }

}  // namespace

int virtual_nodes_of(const TrainConfig& train) {
  return train.virtual_nodes > 0 ? train.virtual_nodes : default_divisor(train.batch_size);
}

int reduction_groups_of(const TrainConfig& train) {
  return train.reduction_groups > 0 ? train.reduction_groups
                                    : default_divisor(virtual_nodes_of(train));
}

std::vector<int> groups_of_hosts(const TrainConfig& train, const HostsConfig& hosts) {
  const int groups = reduction_groups_of(train);
  if (!hosts.several()) return {groups};
  std::vector<int> sizes;
  for (int host = 0; host < hosts.size; ++host) {
    sizes.push_back(groups / hosts.size + (host < groups % hosts.size ? 1 : 0));
  }
  return sizes;
}

int groups_of_host(const TrainConfig& train, const HostsConfig& hosts) {
  return groups_of_hosts(train,
                         hosts)[static_cast<std::size_t>(hosts.several() ? hosts.number : 0)];
}

}  // namespace spillway
