#include "models/data/data_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <list>
#include <system_error>
#include <utility>

#include "core/base/config_check.h"
#include "core/base/mutex.h"
#include "spillway/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNotAFile = "is neither a regular file nor a folder";

[[noreturn]] void reject(const std::string& path, const std::string& problem) {
  throw ConfigError("data.path", 0, fmt::format("'{}' {}", path, problem));
}

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw Error(
      fmt::format("data file '{}' {}; put it back as it was and resume with --retry-failed, or "
                  "train in another "
                  "output_dir",
                  path, problem));
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code broken_link;
    if (at->is_regular_file(broken_link)) found.push_back(at->path().string());
  }
  if (error) reject(folder, fmt::format("cannot be listed: {}", error.message()));
  std::ranges::sort(found);
  return found;
}

}  // namespace

/// -1 if it could not be opened; errno has the reason.
class DataFiles::Descriptor {
 public:
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  explicit Descriptor(const std::string& path)
      : value(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const int value;
};

/// The most recently read files. Thread-safe.
class DataFiles::OpenFiles {
 public:
  explicit OpenFiles(std::size_t most) : most_(most) {}

  std::shared_ptr<const Descriptor> find(std::size_t file) {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(recent_, file, &Entry::first);
    if (found == recent_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found);
    return found->second;
  }
  void keep(std::size_t file, std::shared_ptr<const Descriptor> descriptor) {
    const MutexLock lock(mutex_);
    recent_.emplace_front(file, std::move(descriptor));
    if (recent_.size() > most_) recent_.pop_back();
  }
  void close_all() {
    const MutexLock lock(mutex_);
    recent_.clear();
  }

 private:
  // Shared with the threads that read: the last one closes it.
  using Entry = std::pair<std::size_t, std::shared_ptr<const Descriptor>>;
  const std::size_t most_;
  Mutex mutex_;
  std::list<Entry> recent_ SPILLWAY_GUARDED_BY(mutex_);  // the latest first
};

DataFiles::DataFiles(const std::vector<std::string>& paths, std::size_t max_open)
    : open_(std::make_unique<OpenFiles>(max_open)) {
  if (paths.empty()) throw ConfigError("data.path", 0, "names no file; give a file or a folder");
  ConfigCheck check;
  for (const std::string& path : paths) check.run([&] { add_path(path); });
  check.finish();
}

DataFiles::DataFiles(DataFiles&& other) noexcept = default;
DataFiles::~DataFiles() = default;

void DataFiles::add_path(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) reject(path, fmt::format("cannot be read: {}", error.message()));
  if (fs::is_directory(status)) {
    if (!add_folder(path)) reject(path, "is a folder without a file that has bytes");
  } else if (!fs::is_regular_file(status)) {
    reject(path, kNotAFile);
  } else if (!add(path)) {
    reject(path, "is empty; name files that have bytes");
  }
}

/// Returns whether a file in it has bytes.
bool DataFiles::add_folder(const std::string& folder) {
  bool any = false;
  for (const std::string& path : files_below(folder)) any |= add(path);
  return any;
}

/// Returns whether the file has bytes.
bool DataFiles::add(const std::string& path) {
  auto opened = std::make_shared<const Descriptor>(path);
  struct stat status {};
  if (opened->value < 0 || ::fstat(opened->value, &status) != 0) {
    reject(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) reject(path, kNotAFile);
  if (status.st_size == 0) return false;
  open_->keep(files_.size(), std::move(opened));
  files_.push_back({.path = path,
                    .size = static_cast<Bytes>(status.st_size),
                    .modified = status.st_mtim,
                    .device = status.st_dev,
                    .inode = status.st_ino});
  return true;
}

std::shared_ptr<const DataFiles::Descriptor> DataFiles::descriptor(std::size_t file) const {
  if (auto open = open_->find(file)) return open;
  const File& known = files_[file];
  auto opened = std::make_shared<const Descriptor>(known.path);
  if (opened->value < 0 && (errno == EMFILE || errno == ENFILE)) {
    open_->close_all();
    opened = std::make_shared<const Descriptor>(known.path);
  }
  struct stat status {};
  if (opened->value < 0 || ::fstat(opened->value, &status) != 0) {
    fail(known.path, fmt::format("cannot be opened again: {}", std::strerror(errno)));
  }
  if (status.st_dev != known.device || status.st_ino != known.inode) {
    fail(known.path, "is no longer the file that the run began with");
  }
  open_->keep(file, opened);
  return opened;
}

void DataFiles::read(std::size_t file, Bytes offset, std::span<std::byte> into) const {
  const File& known = files_[file];
  assert(offset + into.size() <= known.size);
  const auto open = descriptor(file);
  while (!into.empty()) {
    const auto count = ::pread(open->value, into.data(), into.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError("cannot read data file", known.path, errno);
    if (count == 0) break;  // it is shorter now
    into = into.subspan(static_cast<std::size_t>(count));
    offset += static_cast<Bytes>(count);
  }
  // Checked after the read: a writer changes the time before the bytes.
  require_unchanged(file, *open);
}

std::shared_ptr<std::byte> DataFiles::map(std::size_t file, Bytes offset, Bytes bytes) const {
  const File& known = files_[file];
  assert(bytes > 0 && offset + bytes <= known.size);
  const auto open = descriptor(file);
  require_unchanged(file, *open);
  const Bytes before = offset % kPage, mapped = before + bytes;
  void* const pages = ::mmap(nullptr, mapped, PROT_READ, MAP_SHARED, open->value,
                             static_cast<off_t>(offset - before));
  if (pages == MAP_FAILED) throw IoError("cannot map", known.path, errno);
  return {static_cast<std::byte*>(pages) + before,
          [pages, mapped](std::byte*) { ::munmap(pages, mapped); }};
}

void DataFiles::require_unchanged(std::size_t file, const Descriptor& open) const {
  const File& known = files_[file];
  struct stat now {};
  if (::fstat(open.value, &now) != 0) throw IoError("cannot look at", known.path, errno);
  if (static_cast<Bytes>(now.st_size) != known.size) {
    fail(known.path, fmt::format("was changed during the run: it had {} bytes, now it has {} bytes",
                                 known.size, now.st_size));
  }
  if (now.st_mtim.tv_sec != known.modified.tv_sec ||
      now.st_mtim.tv_nsec != known.modified.tv_nsec) {
    fail(known.path, "was written to during the run");
  }
}

}  // namespace spillway
