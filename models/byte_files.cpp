#include "models/byte_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"

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

}  // namespace

MappedFile::MappedFile(const std::string& path) {
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

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

ByteFiles::ByteFiles(const std::vector<std::string>& paths) {
  if (paths.empty()) throw ConfigError("data.path", 0, "names no file; give a file or a folder");
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) reject(path, "cannot be read: " + error.message());
    const std::uint64_t before = size();
    if (fs::is_directory(status)) {
      add_folder(path);
      if (size() == before) reject(path, "is a folder without a file that has bytes");
    } else if (fs::is_regular_file(status)) {
      add(path);
      if (size() == before) reject(path, "is empty; name files that have bytes");
    } else {
      reject(path, "is neither a regular file nor a folder");
    }
  }
}

void ByteFiles::add(const std::string& path) {
  MappedFile file(path);
  if (file.bytes().empty()) return;
  ends_.push_back(size() + file.bytes().size());
  files_.push_back(std::move(file));
}

void ByteFiles::add_folder(const std::string& folder) {
  for (const std::string& path : files_below(folder)) add(path);
}

void ByteFiles::read(std::uint64_t begin, std::span<std::int64_t> out) const {
  assert(begin + out.size() <= size());
  auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  while (!out.empty()) {
    const std::span<const std::byte> bytes = files_[file].bytes();
    const std::uint64_t skipped = begin - (ends_[file] - bytes.size());
    const std::size_t count = std::min<std::size_t>(out.size(), bytes.size() - skipped);
    std::ranges::transform(bytes.subspan(skipped, count), out.begin(),
                           [](std::byte b) { return std::to_integer<std::int64_t>(b); });
    out = out.subspan(count);
    begin = ends_[file++];
  }
}

}  // namespace spillway
