#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/mapped_file.h"

namespace spillway {

/// The tokens of files one behind the other, mapped once. A token is 1, 2 or 4 bytes, unsigned and
/// little-endian. Immutable, so any thread may read.
class TokenFiles {
 public:
  /// Paths as for map_files(). Throws ConfigError (`data.path`) as map_files() and for a file whose
  /// size is no multiple of `bytes_per_token`.
  explicit TokenFiles(const std::vector<std::string>& paths, std::size_t bytes_per_token = 1);

  std::uint64_t size() const { return ends_.back(); }
  /// Writes tokens [begin, begin + out.size()).
  void read(std::uint64_t begin, std::span<std::int64_t> out) const;
  /// Reads all of them. Throws ConfigError (`data.path`) for the first that is not below
  /// `vocab_size`.
  void check(std::int64_t vocab_size) const;

 private:
  std::int64_t token(const MappedFile& file, std::size_t number) const;

  std::vector<MappedFile> files_;
  std::size_t bytes_per_token_;
  std::vector<std::uint64_t> ends_;  // of each file, behind its last token
};

}  // namespace spillway
