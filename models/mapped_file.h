#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace spillway {

/// A regular file in memory, read-only and shared with the system's page cache. Immutable, so any
/// thread may read; the file must not shrink meanwhile.
class MappedFile {
 public:
  /// Throws ConfigError (`data.path`). An empty file gives no bytes.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

/// The files that `paths` name, none of them empty. A folder stands for the regular files anywhere
/// below it, in the byte order of their paths; empty ones are skipped. Throws ConfigError
/// (`data.path`) for a path that cannot be read, that is an empty file, or a folder without a byte.
std::vector<MappedFile> map_files(const std::vector<std::string>& paths);

}  // namespace spillway
