#pragma once

#include <filesystem>
#include <memory>

#include "spilling/store.h"

namespace spillway {

/// Throws ConfigError (`home_path`) where the folder cannot hold homes. An empty path can.
void require_home_path(const std::filesystem::path& home_path);

/// Where the homes of a session lie: in files of the folder `home_path`, or, where that is empty,
/// in the host memory of `device`, which outlives the store. Throws as require_home_path().
std::unique_ptr<Store> make_home_store(const std::filesystem::path& home_path, Device& device);

/// Throws DoesNotFit unless the disk of `home_path` has room for `bytes` now, ConfigError where it
/// cannot reserve room at all. An empty path has room.
void require_home_room(const std::filesystem::path& home_path, Bytes bytes);

}  // namespace spillway
