#include "core/os/host_memory.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace spillway {
namespace {

using Path = std::filesystem::path;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();
constexpr auto kLine = std::numeric_limits<std::streamsize>::max();

/// The names of files and of keys in `memory.stat`, by version of control groups.
struct GroupNames {
  const char *folder, *limit, *used, *inactive, *active;
};

constexpr std::array kVersions{
    GroupNames{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
    GroupNames{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
               "total_inactive_file", "total_active_file"}};

/// The number after `key` in a file of lines such as "MemTotal:  1024 kB".
std::optional<Bytes> value_of(const Path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string word; in >> word; in.ignore(kLine, '\n')) {
    Bytes value = 0;
    if (word == key && in >> value) return value;
  }
  return std::nullopt;
}

/// A file of one number; "max" or no file is no limit.
Bytes limit_in(const Path& file) {
  std::ifstream in(file);
  Bytes value = 0;
  return in >> value ? value : kUnlimited;
}

/// The memory that the group may still use. Its usage includes cached files, which the system drops
/// when memory is needed.
Bytes left_by(Bytes limit, const Path& folder, const GroupNames& names) {
  if (limit == kUnlimited) return kUnlimited;
  const Path stat = folder / "memory.stat";
  const Bytes used = limit_in(folder / names.used);
  const Bytes cached =
      value_of(stat, names.inactive).value_or(0) + value_of(stat, names.active).value_or(0);
  const Bytes held = used - std::min(cached, used);
  return limit - std::min(held, limit);
}

Bytes meminfo(const Path& root, const std::string& key) {
  const auto kib = value_of(root / "proc/meminfo", key);
  return kib ? *kib * 1024 : kUnlimited;
}

}  // namespace

HostMemory host_memory(const Path& root) {
  HostMemory memory{.total = meminfo(root, "MemTotal:"),
                    .available = meminfo(root, "MemAvailable:")};
  for (const GroupNames& names : kVersions) {
    const Path folder = root / names.folder;
    const Bytes limit = limit_in(folder / names.limit);
    memory.total = std::min(memory.total, limit);
    memory.available = std::min(memory.available, left_by(limit, folder, names));
  }
  return memory;
}

}  // namespace spillway
