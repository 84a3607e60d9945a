#pragma once

#include <filesystem>

namespace spillway {

/// Where the program keeps measured costs: $XDG_CACHE_HOME or ~/.cache, spillway/pilot.json. Empty
/// where neither is known.
std::filesystem::path pilot_cache_file();

}  // namespace spillway
