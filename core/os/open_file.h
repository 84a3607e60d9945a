#pragma once

#include <string>

#include "core/os/file_system.h"

namespace spillway {

/// An open file of a FileSystem. It retries interrupted calls and completes short reads and writes.
/// It never retries a failed sync, which may have lost data. Throws IoError.
class OpenFile {
 public:
  /// For reading.
  static OpenFile open(FileSystem& files, const FileSystem::Path& path);
  /// A new file, for reading and writing.
  static OpenFile create(FileSystem& files, const FileSystem::Path& path);
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  const FileSystem::Path& path() const { return path_; }
  Bytes size() const;
  void preallocate(Bytes bytes);
  void write_all(std::span<const std::byte> bytes, Bytes offset);
  /// Throws CorruptData if the file ends before `into` is full.
  void read_all(std::span<std::byte> into, Bytes offset) const;
  void sync();
  /// The destructor also closes, but ignores errors.
  void close();

 private:
  OpenFile(FileSystem& files, FileSystem::Path path, FileSystem::Handle handle);

  FileSystem* files_;
  FileSystem::Path path_;
  FileSystem::Handle handle_;
};

/// All bytes of a file. Throws IoError, and CorruptData if the file is larger than `limit`.
std::string read_file(FileSystem& files, const FileSystem::Path& path, Bytes limit);

}  // namespace spillway
