#include "runs/control/started_hosts.h"

#include <cstdlib>

namespace spillway {
namespace {

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<std::string> overrides_of_started_host() {
  struct Names {
    const char *size, *number, *name;
    std::string port;
  };
  for (const Names& names :
       {Names{"WORLD_SIZE", "RANK", "MASTER_ADDR", value_of("MASTER_PORT")},
        Names{"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LAUNCH_NODE_IPADDR", "29400"}}) {
    const std::string size = value_of(names.size), number = value_of(names.number);
    const std::string name = value_of(names.name);
    if (size.empty() || number.empty() || name.empty()) continue;
    if (size == "1") return {};
    return {"hosts.size=" + size, "hosts.number=" + number,
            "hosts.endpoint=" + name + ":" + names.port};
  }
  return {};
}

}  // namespace spillway
