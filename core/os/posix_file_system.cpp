#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "core/os/file_system.h"
#include "spillway/error.h"

namespace spillway {
namespace {

using Path = FileSystem::Path;

/// The path that was opened as `handle`, for messages.
std::string name_of(int handle) {
  std::error_code error;
  const auto link = fmt::format("/proc/self/fd/{}", handle);
  const Path path = std::filesystem::read_symlink(link, error);
  return error ? link : path.string();
}

void check(bool done, const char* what, const Path& path) {
  if (!done) throw IoError(what, path, errno);
}

void check(bool done, const char* what, int handle) {
  if (done) return;
  const int code = errno;
  throw IoError(what, name_of(handle), code);
}

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "something else";
}

void require_regular(int handle, const Path& path) {
  struct stat status {};
  check(::fstat(handle, &status) == 0, "cannot look at", path);
  if (S_ISREG(status.st_mode)) return;
  if (S_ISDIR(status.st_mode)) throw IoError("cannot open", path, EISDIR);
  throw CorruptData(path, fmt::format("is {}, not a regular file", kind_of(status.st_mode)));
}

class PosixFileSystem final : public FileSystem {
 public:
  Handle open(const Path& file) override {
    // Without O_NONBLOCK, opening a FIFO would wait for a writer.
    const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    check(handle >= 0, "cannot open", file);
    try {
      require_regular(handle, file);
    } catch (...) {
      ::close(handle);
      throw;
    }
    return handle;
  }

  Handle create(const Path& file) override {
    const int handle = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    check(handle >= 0, "cannot create", file);
    return handle;
  }

  void close(Handle file) override {
    const std::string name = name_of(file);
    // On Linux the handle is closed even after EINTR.
    check(::close(file) == 0 || errno == EINTR, "cannot close", Path(name));
  }

  Bytes size(Handle file) override {
    struct stat status {};
    check(::fstat(file, &status) == 0, "cannot look at", file);
    return static_cast<Bytes>(status.st_size);
  }

  void preallocate(Handle file, Bytes bytes) override {
    if (bytes == 0) return;
    errno = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
    check(errno == 0, "cannot reserve space for", file);
  }

  Bytes pread(Handle file, std::span<std::byte> into, Bytes offset) override {
    const auto count = ::pread(file, into.data(), into.size(), static_cast<off_t>(offset));
    check(count >= 0, "cannot read", file);
    return static_cast<Bytes>(count);
  }

  Bytes pwrite(Handle file, std::span<const std::byte> bytes, Bytes offset) override {
    const auto count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    check(count >= 0, "cannot write", file);
    return static_cast<Bytes>(count);
  }

  void sync(Handle file) override { check(::fsync(file) == 0, "cannot sync", file); }

  void rename(const Path& from, const Path& to) override {
    check(::rename(from.c_str(), to.c_str()) == 0, "cannot rename a file to", to);
  }
  void unlink(const Path& file) override {
    check(::unlink(file.c_str()) == 0, "cannot remove", file);
  }
  void make_folder(const Path& folder) override {
    check(::mkdir(folder.c_str(), 0777) == 0, "cannot create folder", folder);
  }
  void remove_folder(const Path& folder) override {
    check(::rmdir(folder.c_str()) == 0, "cannot remove folder", folder);
  }

  std::vector<std::string> list(const Path& folder) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator at(folder, error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error))
      names.push_back(at->path().filename().string());
    if (error) throw IoError("cannot list", folder, error.value());
    std::ranges::sort(names);
    return names;
  }

  void sync_folder(const Path& folder) override {
    const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(handle >= 0, "cannot open folder", folder);
    const int code = ::fsync(handle) == 0 ? 0 : errno;
    ::close(handle);
    // Some file systems cannot sync a folder (EINVAL); nothing more can be done there.
    if (code != 0 && code != EINVAL) throw IoError("cannot sync folder", folder, code);
  }

  Bytes free_bytes(const Path& folder) override {
    struct statvfs disk {};
    check(::statvfs(folder.c_str(), &disk) == 0, "cannot look at the disk of", folder);
    return Bytes{disk.f_bavail} * disk.f_frsize;
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem files;
  return files;
}

std::filesystem::path existing_part(std::filesystem::path path) {
  namespace fs = std::filesystem;
  std::error_code error;
  path = fs::absolute(path, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  while (!fs::exists(fs::symlink_status(path, error)) && path != path.parent_path())
    path = path.parent_path();
  return path;
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  const auto path = std::filesystem::absolute(folder, error).lexically_normal();
  if (std::filesystem::exists(path, error)) return;
  make_folders(path.parent_path());
  if (!path.has_filename()) return;
  try {
    posix_file_system().make_folder(path);
  } catch (const IoError& problem) {
    if (problem.code != EEXIST) throw;
  }
  posix_file_system().sync_folder(path.parent_path());
}

}  // namespace spillway
