#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/os/open_file.h"

namespace spillway {

/// A file that appears at its path whole or not at all, also after a crash. Written as `PATH.tmp`,
/// which is removed if commit() does not come. Everything throws IoError.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path, FileSystem& files = posix_file_system());
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Replaces what lies at the path. Bytes and name are on stable storage when it returns.
  void commit();

 private:
  FileSystem& files_;
  const std::filesystem::path path_;
  OpenFile file_;
  Bytes written_ = 0;
  bool renamed_ = false;
};

}  // namespace spillway
