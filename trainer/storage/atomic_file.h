#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/os/open_file.h"

namespace spillway {

/// A file that appears at its path complete or not at all, also after a crash. Writes to
/// `PATH.tmp`, which the destructor removes without a commit(). Everything throws IoError.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path, FileSystem& files = posix_file_system());
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Replaces the file at the path. Its bytes and name are on stable storage when it returns.
  void commit();

 private:
  FileSystem& files_;
  const std::filesystem::path path_;
  OpenFile file_;
  Bytes written_ = 0;
  bool renamed_ = false;
};

}  // namespace spillway
