#include "trainer/storage/atomic_file.h"

#include <cerrno>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

/// Creates an empty file, replacing one that an earlier process may have left.
OpenFile create_anew(FileSystem& files, fs::path path) {
  path += ".tmp";
  try {
    files.unlink(path);
  } catch (const IoError& error) {
    if (error.code != ENOENT) throw;
  }
  return OpenFile::create(files, path);
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

}  // namespace

AtomicFile::AtomicFile(fs::path path, FileSystem& files)
    : files_(files), path_(std::move(path)), file_(create_anew(files_, path_)) {}

AtomicFile::~AtomicFile() {
  if (renamed_) return;
  try {
    files_.unlink(file_.path());
  } catch (const IoError&) {
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  file_.write_all(bytes, written_);
  written_ += bytes.size();
}

void AtomicFile::commit() {
  file_.sync();
  file_.close();
  files_.rename(file_.path(), path_);
  renamed_ = true;
  files_.sync_folder(folder_of(path_));
}

}  // namespace spillway
