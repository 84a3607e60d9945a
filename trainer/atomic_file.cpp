#include "trainer/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/error.h"

namespace spillway {
namespace {

void sync_folder(const std::filesystem::path& file) {
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) throw IoError("cannot open folder", folder, errno);
  const int error = ::fsync(handle) == 0 ? 0 : errno;
  ::close(handle);
  // Some file systems cannot sync a folder; there is nothing more to do for it then.
  if (error != 0 && error != EINVAL) throw IoError("cannot sync folder", folder, error);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), temporary_(path_) {
  temporary_ += ".tmp";
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) throw IoError("cannot create", temporary_, errno);
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw IoError("cannot write", temporary_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0) throw IoError("cannot sync", temporary_, errno);
  const int closed = ::close(file_);
  file_ = -1;
  if (closed != 0) throw IoError("cannot close", temporary_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw IoError("cannot write", path_, errno);
  temporary_.clear();
  sync_folder(path_);
}

}  // namespace spillway
