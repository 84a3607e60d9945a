#pragma once

#include "spillway/session_config.h"

namespace spillway {

/// Whether one of several hosts can use its backend. Throws ConfigErrors (`hosts.backend`).
void require_backend(const HostsConfig& config, bool has_gpus);

}  // namespace spillway
