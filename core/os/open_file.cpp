#include "core/os/open_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr FileSystem::Handle kClosed = -1;

/// Retries a call while it is interrupted, up to a limit.
template <typename Call>
auto uninterrupted(const Call& call) {
  constexpr int kTries = 1000;
  for (int attempt = 1;; ++attempt) {
    try {
      return call();
    } catch (const IoError& error) {
      if (error.code != EINTR || attempt == kTries) throw;
    }
  }
}

}  // namespace

OpenFile::OpenFile(FileSystem& files, FileSystem::Path path, FileSystem::Handle handle)
    : files_(&files), path_(std::move(path)), handle_(handle) {}

OpenFile OpenFile::open(FileSystem& files, const FileSystem::Path& path) {
  return {files, path, uninterrupted([&] { return files.open(path); })};
}

OpenFile OpenFile::create(FileSystem& files, const FileSystem::Path& path) {
  return {files, path, uninterrupted([&] { return files.create(path); })};
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      handle_(std::exchange(other.handle_, kClosed)) {}

OpenFile::~OpenFile() {
  try {
    close();
  } catch (const IoError&) {
  }
}

void OpenFile::close() {
  if (handle_ != kClosed) files_->close(std::exchange(handle_, kClosed));
}

Bytes OpenFile::size() const {
  return uninterrupted([&] { return files_->size(handle_); });
}

void OpenFile::preallocate(Bytes bytes) {
  uninterrupted([&] { files_->preallocate(handle_, bytes); });
}

void OpenFile::write_all(std::span<const std::byte> bytes, Bytes offset) {
  while (!bytes.empty()) {
    const Bytes count = uninterrupted([&] { return files_->pwrite(handle_, bytes, offset); });
    if (count == 0) throw IoError("cannot write", path_, EIO);
    bytes = bytes.subspan(count);
    offset += count;
  }
}

void OpenFile::read_all(std::span<std::byte> into, Bytes offset) const {
  while (!into.empty()) {
    const Bytes count = uninterrupted([&] { return files_->pread(handle_, into, offset); });
    if (count == 0)
      throw CorruptData(path_,
                        fmt::format("ends at byte {}, {} bytes too early", offset, into.size()));
    into = into.subspan(count);
    offset += count;
  }
}

void OpenFile::sync() { files_->sync(handle_); }

std::string read_file(FileSystem& files, const FileSystem::Path& path, Bytes limit) {
  const OpenFile file = OpenFile::open(files, path);
  const Bytes size = file.size();
  if (size > limit)
    throw CorruptData(path, fmt::format("has {}; the limit for such a file is {}",
                                        format_bytes(size), format_bytes(limit)));
  std::string text(size, '\0');
  file.read_all(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

}  // namespace spillway
