#include "spilling/tiers/home_store.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "core/os/file_system.h"
#include "spilling/tiers/file_store.h"
#include "spilling/tiers/memory_store.h"
#include "spillway/error.h"

namespace spillway {
namespace {

ConfigError no_place(const std::filesystem::path& offload_path, const IoError& error) {
  return ConfigError(
      "offload_path", 0,
      fmt::format("'{}' cannot hold training state: {}; name a writable folder, or remove the key",
                  offload_path.string(), std::strerror(error.code)));
}

}  // namespace

void require_home_path(const std::filesystem::path& offload_path) {
  if (offload_path.empty()) return;
  try {
    FileStore{offload_path};
  } catch (const IoError& error) {
    throw no_place(offload_path, error);
  }
}

std::unique_ptr<Store> make_home_store(const std::filesystem::path& offload_path, Device& device) {
  require_home_path(offload_path);
  if (offload_path.empty()) return std::make_unique<MemoryStore>(device);
  return std::make_unique<FileStore>(offload_path);
}

void require_home_room(const std::filesystem::path& offload_path, Bytes bytes, Bytes of_one) {
  if (offload_path.empty()) return;
  require_home_path(offload_path);
  const Bytes available = posix_file_system().free_bytes(offload_path);
  if (bytes <= available) return;
  const bool fewer_help = of_one < bytes && of_one <= available;
  throw DoesNotFit(fmt::format("offloaded training state in '{}'", offload_path.string()),
                   Tier::disk, bytes, available,
                   fewer_help ? "or lower host_memory, so that trials wait for each other" : "");
}

}  // namespace spillway
