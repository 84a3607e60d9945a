#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/data/data_files.h"

namespace spillway {

/// The tokens of consecutive files, read from disk on demand. A token is 1, 2 or 4 bytes, unsigned
/// and little-endian. Any thread may read.
class TokenFiles {
 public:
  /// Paths as for DataFiles. Throws ConfigError (`data.path`) as DataFiles does, and if a file's
  /// size is not a multiple of `bytes_per_token`.
  explicit TokenFiles(const std::vector<std::string>& paths, std::size_t bytes_per_token = 1);

  std::uint64_t size() const { return ends_.back(); }
  /// Writes tokens [begin, begin + out.size()). Throws as DataFiles::read().
  void read(std::uint64_t begin, std::span<std::int64_t> out) const;
  /// Reads all tokens. Throws ConfigError (`data.path`) for the first one from `vocab_size` up.
  void check(std::int64_t vocab_size) const;

 private:
  void read_file(std::size_t file, std::uint64_t begin, std::span<std::int64_t> out) const;
  void check_file(std::size_t file, std::int64_t vocab_size) const;

  DataFiles files_;
  std::size_t bytes_per_token_;
  std::vector<std::uint64_t> ends_;  // of each file, past its last token
};

}  // namespace spillway
