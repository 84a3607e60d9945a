#include "trainer/checkpoint/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/xxh3.h"
#include "core/os/open_file.h"
#include "spillway/error.h"
#include "trainer/checkpoint/generation_writer.h"

namespace spillway {
namespace {

/// A file with the hashes of its blocks, one of which is in memory.
class CheckedFile {
 public:
  CheckedFile(OpenFile file, ManifestFile entry, Bytes block_bytes)
      : file_(std::move(file)), entry_(std::move(entry)), block_bytes_(block_bytes) {
    const Bytes size = file_.size();
    if (size != entry_.bytes)
      throw CorruptData(file_.path(),
                        fmt::format("has {} bytes; its manifest has {}", size, entry_.bytes));
    block_.reserve(std::min(block_bytes_, size));
  }

  void read(std::span<std::byte> into, Bytes offset) {
    if (offset > entry_.bytes || into.size() > entry_.bytes - offset)
      throw CorruptData(file_.path(), fmt::format("ends at byte {}", entry_.bytes));
    while (!into.empty()) {
      load(offset / block_bytes_);
      const Bytes skipped = offset % block_bytes_;
      const auto part = std::span(block_).subspan(skipped);
      const auto count = std::min(part.size(), into.size());
      std::memcpy(into.data(), part.data(), count);
      into = into.subspan(count);
      offset += count;
    }
  }

  void check_all() {
    for (std::size_t index = 0; index < entry_.blocks.size(); ++index) load(index);
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  void load(std::size_t index) {
    if (index == loaded_) return;
    loaded_ = kNone;
    const Bytes offset = index * block_bytes_;
    block_.resize(std::min(block_bytes_, entry_.bytes - offset));
    file_.read_all(block_, offset);
    if (xxh3(block_) != entry_.blocks[index])
      throw CorruptData(file_.path(), fmt::format("is damaged between bytes {} and {}", offset,
                                                  offset + block_.size()));
    loaded_ = index;
  }

  OpenFile file_;
  const ManifestFile entry_;
  const Bytes block_bytes_;
  std::vector<std::byte> block_;
  std::size_t loaded_ = kNone;
};

Manifest read_manifest(FileSystem& files, const FileSystem::Path& path) {
  return parse_manifest(read_file(files, path, Manifest::kMaxBytes), path);
}

}  // namespace

Generation::Generation(FileSystem& files, FileSystem::Path folder, std::uint64_t number)
    : files_(&files),
      folder_(std::move(folder)),
      number_(number),
      manifest_(read_manifest(files, folder_ / kManifestName)) {}

bool Generation::has(std::string_view name) const {
  return std::ranges::find(manifest_.files, name, &ManifestFile::name) != manifest_.files.end();
}

ByteSource Generation::file(std::string_view name) const {
  const auto entry = std::ranges::find(manifest_.files, name, &ManifestFile::name);
  if (entry == manifest_.files.end())
    throw CorruptData(folder_, fmt::format("has no file '{}'", name));
  const auto path = folder_ / entry->name;
  // Shared, because a function object can be copied.
  const auto file =
      std::make_shared<CheckedFile>(OpenFile::open(*files_, path), *entry, manifest_.block_bytes);
  return {.path = path, .size = entry->bytes, .read = [file](auto into, Bytes offset) {
            file->read(into, offset);
          }};
}

void Generation::verify() const {
  for (const auto& entry : manifest_.files)
    CheckedFile(OpenFile::open(*files_, folder_ / entry.name), entry, manifest_.block_bytes)
        .check_all();
}

}  // namespace spillway
