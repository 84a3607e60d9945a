#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// The operations that durable files need, one system call each. All throw IoError, which names the
/// operation, the file and the cause. Nothing is retried here: reads and writes may be short, any
/// call may be interrupted (EINTR); `OpenFile` handles both.
///
/// A crash of the machine preserves the bytes and length of a synced file, and the names in a
/// synced folder. A rename is atomic.
class FileSystem {
 public:
  using Path = std::filesystem::path;
  using Handle = int;

  virtual ~FileSystem() = default;

  /// For reading. ENOENT for a missing file, EISDIR for a folder. Throws CorruptData without
  /// waiting for a FIFO or anything else that is not a regular file.
  virtual Handle open(const Path& file) = 0;
  /// A new file, for reading and writing; EEXIST if the name exists.
  virtual Handle create(const Path& file) = 0;
  /// The handle is closed even if this throws.
  virtual void close(Handle file) = 0;

  virtual Bytes size(Handle file) = 0;
  /// Reserves disk space for `bytes` and makes the file at least that long. Bytes that were never
  /// written read as zeros.
  virtual void preallocate(Handle file, Bytes bytes) = 0;
  /// Returns how many bytes were read, 0 only at the end of the file.
  virtual Bytes pread(Handle file, std::span<std::byte> into, Bytes offset) = 0;
  /// Returns how many bytes were written.
  virtual Bytes pwrite(Handle file, std::span<const std::byte> bytes, Bytes offset) = 0;
  /// Puts bytes and length on stable storage. If it throws, earlier writes may be lost even if a
  /// later sync succeeds.
  virtual void sync(Handle file) = 0;

  /// Within one folder. Replaces a file of that name.
  virtual void rename(const Path& from, const Path& to) = 0;
  virtual void unlink(const Path& file) = 0;
  virtual void make_folder(const Path& folder) = 0;
  /// ENOTEMPTY if the folder is not empty.
  virtual void remove_folder(const Path& folder) = 0;
  /// The names of all entries of the folder, in byte order.
  virtual std::vector<std::string> list(const Path& folder) = 0;
  virtual void sync_folder(const Path& folder) = 0;
  /// Free bytes on the disk of the folder, for this user.
  virtual Bytes free_bytes(const Path& folder) = 0;
};

/// The file system of the operating system. It has no state.
FileSystem& posix_file_system();

/// `path`, or the nearest folder above it that exists in the operating system. Absolute.
std::filesystem::path existing_part(std::filesystem::path path);

/// Creates the folder and its missing parents, and syncs their names. Throws IoError.
void make_folders(const std::filesystem::path& folder);

}  // namespace spillway
