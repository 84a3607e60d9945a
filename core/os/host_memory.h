#pragma once

#include <filesystem>

#include "spillway/units.h"

namespace spillway {

/// Memory of the machine, or what a control group leaves this process of it.
struct HostMemory {
  Bytes total = 0;
  Bytes available = 0;  ///< not in use now, without swapping
};

/// As the system says below `root`, for control groups of either version; without limits where it
/// does not.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace spillway
