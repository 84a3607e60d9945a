#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/units.h"

namespace spillway {

/// Regular files that samples are read from. Any thread may read.
///
/// Every read returns the content that the file had at construction. If a file's size or
/// modification time has changed, or it cannot be read, an Error names it. The most recently read
/// files stay open, so they may be removed or replaced; any other file is reopened when it is read
/// and must still be the same one.
class DataFiles {
 public:
  static constexpr std::size_t kMaxOpen = 16;

  /// The files that `paths` name, none of them empty. A folder stands for the regular files
  /// anywhere below it, in the byte order of their paths; empty ones are skipped. Throws
  /// ConfigError
  /// (`data.path`) for a path that cannot be read, that is an empty file, or a folder without a
  /// byte.
  explicit DataFiles(const std::vector<std::string>& paths, std::size_t max_open = kMaxOpen);
  DataFiles(DataFiles&& other) noexcept;
  DataFiles& operator=(DataFiles&&) = delete;
  ~DataFiles();

  std::size_t num_files() const { return files_.size(); }
  const std::string& path(std::size_t file) const { return files_[file].path; }
  Bytes size(std::size_t file) const { return files_[file].size; }
  /// Fills `into` with the bytes of the file from `offset` on; it has as many.
  void read(std::size_t file, Bytes offset, std::span<std::byte> into) const;
  /// The bytes of the file from `offset` on, read as they are needed; the system may forget them
  /// and read them again. They must not be written. Throws Error if the file has changed; what
  /// changes later is not noticed.
  std::shared_ptr<std::byte> map(std::size_t file, Bytes offset, Bytes bytes) const;

 private:
  /// A file as it was when it was opened first.
  struct File {
    std::string path;
    Bytes size = 0;
    timespec modified{};
    std::uint64_t device = 0, inode = 0;
  };
  class Descriptor;
  class OpenFiles;

  void add_path(const std::string& path);
  bool add_folder(const std::string& folder);
  bool add(const std::string& path);
  std::shared_ptr<const Descriptor> descriptor(std::size_t file) const;
  void require_unchanged(std::size_t file, const Descriptor& open) const;

  std::vector<File> files_;
  std::unique_ptr<OpenFiles> open_;
};

}  // namespace spillway
