#pragma once

#include <filesystem>

namespace spillway {

/// Whether both paths, or the folders above them that exist, share the space of one file system.
bool share_disk(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace spillway
