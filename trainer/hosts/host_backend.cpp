#include "trainer/hosts/host_backend.h"

#include <fmt/format.h>

#include "core/base/config_check.h"
#include "core/peers/nccl_pipe.h"
#include "spillway/error.h"

namespace spillway {

void require_backend(const HostsConfig& config, bool has_gpus) {
  if (config.backend != BackendKind::nccl) return;
  ConfigCheck check;
  check.require(has_gpus, "hosts.backend",
                "is nccl, but no device is a GPU; write gloo, or devices of kind cuda");
  check.require(config.trust_network, "hosts.backend",
                "is nccl, which neither authenticates nor encrypts; set hosts.trust_network: true "
                "in a private network, or write gloo");
  check.finish();
  try {
    require_nccl();
  } catch (const Error& error) {
    throw ConfigError("hosts.backend", 0,
                      fmt::format("is nccl, but {}; or write gloo", error.what()));
  }
}

}  // namespace spillway
