#include "spilling/tiers/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

/// An unlinked file: its space is freed once it is neither open nor mapped.
class NamelessFile {
 public:
  explicit NamelessFile(const std::filesystem::path& folder) : folder_(folder) {
    std::string name = folder / ".spillway-home-XXXXXX";
    handle_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (handle_ < 0) throw IoError("cannot create an offload file in", folder, errno);
    ::unlink(name.c_str());
  }
  ~NamelessFile() { ::close(handle_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  /// Reserves `bytes` of zeros on the disk.
  void reserve(Bytes bytes) const {
    // Checked first, so that a request that fails does not fill the disk for others.
    if (bytes > free_bytes()) refuse(bytes);
    while (::fallocate(handle_, 0, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno == ENOSPC || errno == EDQUOT) refuse(bytes);
      if (errno != EINTR) throw IoError(reserving(bytes), folder_, errno);
    }
  }

  std::byte* map(Bytes bytes) const {
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle_, 0);
    if (pages == MAP_FAILED) throw IoError("cannot map an offload file in", folder_, errno);
    return static_cast<std::byte*>(pages);
  }

 private:
  Bytes free_bytes() const {
    struct statvfs disk {};
    if (::fstatvfs(handle_, &disk) != 0)
      throw IoError("cannot read the free space of the disk of", folder_, errno);
    return Bytes{disk.f_bavail} * disk.f_frsize;
  }
  [[noreturn]] void refuse(Bytes bytes) const {
    throw OutOfMemory(Tier::disk, bytes, free_bytes(),
                      fmt::format("an offload file in {}", folder_.string()));
  }
  static std::string reserving(Bytes bytes) {
    return fmt::format("cannot reserve {} for an offload file in", format_bytes(bytes));
  }

  const std::filesystem::path& folder_;
  int handle_;
};

class MappedFile final : public DeviceMemory {
 public:
  MappedFile(const std::filesystem::path& folder, Bytes bytes)
      : size_(bytes), mapped_(std::max(bytes, Bytes{1})) {
    const NamelessFile file(folder);
    file.reserve(mapped_);
    data_ = file.map(mapped_);
  }
  ~MappedFile() override { munmap(data_, mapped_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const override { return data_; }
  Bytes size() const override { return size_; }

 private:
  const Bytes size_, mapped_;
  std::byte* data_;
};

}  // namespace

FileStore::FileStore(std::filesystem::path folder) : folder_(std::move(folder)) {
  const NamelessFile probe(folder_);
}

std::unique_ptr<DeviceMemory> FileStore::allocate(Bytes bytes) {
  return std::make_unique<MappedFile>(folder_, bytes);
}

}  // namespace spillway
