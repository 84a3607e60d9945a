#pragma once

#include <filesystem>
#include <memory>

#include "spilling/tiers/store.h"

namespace spillway {

/// Throws ConfigError (`offload_path`) where the folder cannot hold homes. An empty path can.
void require_home_path(const std::filesystem::path& offload_path);

/// Where the homes of a session lie: in files of the folder `offload_path`, or, where that is
/// empty, in the host memory of `device`, which outlives the store. Throws as require_home_path().
std::unique_ptr<Store> make_home_store(const std::filesystem::path& offload_path, Device& device);

/// Throws DoesNotFit unless the disk of `offload_path` has `bytes` of homes free now, and as
/// require_home_path(). Takes no space. An empty path has room. `of_one`: the home of the trial
/// that comes, which a smaller host_memory would let wait for others.
void require_home_room(const std::filesystem::path& offload_path, Bytes bytes, Bytes of_one);

}  // namespace spillway
