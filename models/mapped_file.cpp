#include "models/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/config_check.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject(const std::string& path, const std::string& problem) {
  throw ConfigError("data.path", 0, "'" + path + "' " + problem);
}

struct FileDescriptor {
  int value;
  ~FileDescriptor() {
    if (value >= 0) close(value);
  }
};

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code broken_link;
    if (at->is_regular_file(broken_link)) found.push_back(at->path().string());
  }
  if (error) reject(folder, "cannot be listed: " + error.message());
  std::ranges::sort(found);
  return found;
}

/// Returns whether it has bytes.
bool add(const std::string& path, std::vector<MappedFile>& files) {
  MappedFile file(path);
  if (file.bytes().empty()) return false;
  files.push_back(std::move(file));
  return true;
}

bool add_folder(const std::string& folder, std::vector<MappedFile>& files) {
  bool any = false;
  for (const std::string& path : files_below(folder)) any |= add(path, files);
  return any;
}

void add_path(const std::string& path, std::vector<MappedFile>& files) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) reject(path, "cannot be read: " + error.message());
  if (fs::is_directory(status)) {
    if (!add_folder(path, files)) reject(path, "is a folder without a file that has bytes");
  } else if (fs::is_regular_file(status)) {
    if (!add(path, files)) reject(path, "is empty; name files that have bytes");
  } else {
    reject(path, "is neither a regular file nor a folder");
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat status {};
  if (file.value < 0 || fstat(file.value, &status) != 0) {
    reject(path, std::string("cannot be opened: ") + std::strerror(errno));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED) reject(path, std::string("cannot be mapped: ") + std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::vector<MappedFile> map_files(const std::vector<std::string>& paths) {
  if (paths.empty()) throw ConfigError("data.path", 0, "names no file; give a file or a folder");
  ConfigCheck check;
  std::vector<MappedFile> files;
  for (const std::string& path : paths) check.run([&] { add_path(path, files); });
  check.finish();
  return files;
}

}  // namespace spillway
