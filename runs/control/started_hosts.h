#pragma once

#include <string>
#include <vector>

namespace spillway {

/// What torchrun or srun says about this host, as overrides of the configuration ("hosts.size=4").
/// Empty if the process was started by itself, or as the only one. Sources: "Environment Variables"
/// of torch.distributed.run, and "OUTPUT ENVIRONMENT VARIABLES" of srun.
std::vector<std::string> overrides_of_started_host();

}  // namespace spillway
