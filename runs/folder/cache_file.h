#pragma once

#include <filesystem>

namespace spillway {

/// The cache of measured costs: spillway/pilot.json in $XDG_CACHE_HOME or ~/.cache; empty if
/// neither is set.
std::filesystem::path pilot_cache_file();

}  // namespace spillway
