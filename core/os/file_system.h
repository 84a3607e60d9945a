#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// The few operations that durable files are made of, one system call each. Every one throws
/// IoError, which names the operation, the file and the cause. Nothing is retried here: reads and
/// writes may be short, any call may be interrupted (EINTR); `OpenFile` takes care of both.
///
/// What a crash of the machine keeps: bytes and length of a file that was synced, names in a folder
/// that was synced. A rename replaces its target at once or not at all.
class FileSystem {
 public:
  using Path = std::filesystem::path;
  using Handle = int;

  virtual ~FileSystem() = default;

  /// For reading. A file that is not there is ENOENT, a folder EISDIR. Throws CorruptData, and does
  /// not wait, where the name is that of a FIFO or of anything else that is not a regular file.
  virtual Handle open(const Path& file) = 0;
  /// A new file, for reading and writing; EEXIST where anything has that name.
  virtual Handle create(const Path& file) = 0;
  /// Ends the handle, whether or not it throws.
  virtual void close(Handle file) = 0;

  virtual Bytes size(Handle file) = 0;
  /// Takes the space on the disk for `bytes`; what was not written reads as zeros, and the file is
  /// at least that long.
  virtual void preallocate(Handle file, Bytes bytes) = 0;
  /// Returns how many bytes were read, 0 only at the end of the file.
  virtual Bytes pread(Handle file, std::span<std::byte> into, Bytes offset) = 0;
  /// Returns how many bytes were written.
  virtual Bytes pwrite(Handle file, std::span<const std::byte> bytes, Bytes offset) = 0;
  /// Bytes and length are on stable storage then. Where it throws, what was written before may be
  /// lost, also if a later sync succeeds.
  virtual void sync(Handle file) = 0;

  /// Within one folder. Replaces a file of that name.
  virtual void rename(const Path& from, const Path& to) = 0;
  virtual void unlink(const Path& file) = 0;
  virtual void make_folder(const Path& folder) = 0;
  /// ENOTEMPTY where something is in it.
  virtual void remove_folder(const Path& folder) = 0;
  /// Names of all that is in the folder, in byte order.
  virtual std::vector<std::string> list(const Path& folder) = 0;
  virtual void sync_folder(const Path& folder) = 0;
  /// Left on the disk of the folder for this user.
  virtual Bytes free_bytes(const Path& folder) = 0;
};

/// That of the operating system. It has no state.
FileSystem& posix_file_system();

/// There: `path`, or the nearest folder above it that exists. Absolute.
std::filesystem::path existing_part(std::filesystem::path path);

/// There: makes the folder and those above it that are missing, and has their names on stable
/// storage when it returns. Throws IoError.
void make_folders(const std::filesystem::path& folder);

}  // namespace spillway
