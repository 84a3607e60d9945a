#pragma once

#include <filesystem>

#include "spillway/units.h"

namespace spillway {

/// Memory of the machine, or of the control group of this process if that has less.
struct HostMemory {
  Bytes total = 0;
  Bytes available = 0;  ///< not in use now, without swapping
};

/// Reads proc and sys below `root`, for control groups of either version. Missing files are no
/// limit.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace spillway
