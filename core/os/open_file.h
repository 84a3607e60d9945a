#pragma once

#include <string>

#include "core/os/file_system.h"

namespace spillway {

/// An open file of a FileSystem. Calls that are interrupted are made again, short reads and writes
/// go on. A sync is never made again: what it failed to write is lost. Throws IoError.
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
  /// Throws CorruptData where the file ends before `into` is full.
  void read_all(std::span<std::byte> into, Bytes offset) const;
  void sync();
  /// The destructor closes too, but keeps the error to itself.
  void close();

 private:
  OpenFile(FileSystem& files, FileSystem::Path path, FileSystem::Handle handle);

  FileSystem* files_;
  FileSystem::Path path_;
  FileSystem::Handle handle_;
};

/// All bytes of a file. Throws IoError; CorruptData where it holds more than `limit`.
std::string read_file(FileSystem& files, const FileSystem::Path& path, Bytes limit);

}  // namespace spillway
