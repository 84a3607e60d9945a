#pragma once

#include <filesystem>
#include <memory>

#include "spilling/tiers/store.h"

namespace spillway {

/// Throws ConfigError (`offload_path`) if the folder cannot hold homes. An empty path can.
void require_home_path(const std::filesystem::path& offload_path);

/// The store of a session's homes: files in the folder `offload_path` or, if that is empty, the
/// host memory of `device`, which outlives the store. Throws as require_home_path().
std::unique_ptr<Store> make_home_store(const std::filesystem::path& offload_path, Device& device);

/// Throws DoesNotFit unless `bytes` are free on the disk of `offload_path` now, and as
/// require_home_path(). Reserves nothing. An empty path always has room. `of_one`: the home of the
/// next trial, which would wait for others under a smaller host_memory.
void require_home_room(const std::filesystem::path& offload_path, Bytes bytes, Bytes of_one);

}  // namespace spillway
