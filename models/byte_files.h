#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace spillway {

/// A regular file in memory, read-only and shared with the system's page cache.
class MappedFile {
 public:
  /// Throws ConfigError (`data.path`). An empty file gives no bytes.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Files one behind the other, mapped once. Immutable, so any thread may read; the files must not
/// shrink meanwhile.
class ByteFiles {
 public:
  /// A folder stands for the regular files anywhere below it, in the byte order of their paths;
  /// empty ones are skipped. Throws ConfigError (`data.path`) for a path that cannot be read, that
  /// is an empty file, or a folder without a byte.
  explicit ByteFiles(const std::vector<std::string>& paths);

  std::uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Writes bytes [begin, begin + out.size()), each as 0..255.
  void read(std::uint64_t begin, std::span<std::int64_t> out) const;

 private:
  void add(const std::string& path);
  void add_folder(const std::string& folder);

  std::vector<MappedFile> files_;
  std::vector<std::uint64_t> ends_;  // of each file, behind its last byte
};

}  // namespace spillway
