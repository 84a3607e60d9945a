#pragma once

#include <algorithm>
#include <cerrno>
#include <optional>

#include "core/os/file_system.h"
#include "spillway/error.h"
#include "tests/support/disk/crash_fs.h"

namespace spillway::testing {

/// The failure, and the call of a file system at which it happens, counted from 0: an error at any
/// call; one at a sync, counting only syncs; a short read or write.
struct Fault {
  enum class Kind { error, sync, short_count } kind = Kind::error;
  int code = EIO;  ///< of an error
  int at = 0;
  bool for_ever = false;
};

/// A file system in which some calls fail. A failed sync loses the changes that it should have
/// saved.
class FailingFs final : public FileSystem {
 public:
  explicit FailingFs(CrashFs& files, std::optional<Fault> fault = {})
      : files_(files), fault_(fault) {}

  int calls() const { return calls_; }
  int num_failed() const { return num_failed_; }
  void heal() { fault_.reset(); }
  /// Applies from now on; calls are still counted from the first.
  void fail_with(Fault fault) { fault_ = fault; }

  Handle open(const Path& file) override {
    fail("cannot open", file);
    return files_.open(file);
  }
  Handle create(const Path& file) override {
    fail("cannot create", file);
    return files_.create(file);
  }
  void close(Handle file) override {
    files_.close(file);
    fail("cannot close", "a file");
  }
  Bytes size(Handle file) override {
    fail("cannot look at", "a file");
    return files_.size(file);
  }
  void preallocate(Handle file, Bytes bytes) override {
    fail("cannot reserve space for", "a file");
    files_.preallocate(file, bytes);
  }
  Bytes pread(Handle file, std::span<std::byte> into, Bytes offset) override {
    fail("cannot read", "a file");
    return files_.pread(file, into.first(shortened(into.size())), offset);
  }
  Bytes pwrite(Handle file, std::span<const std::byte> bytes, Bytes offset) override {
    fail("cannot write", "a file");
    return files_.pwrite(file, bytes.first(shortened(bytes.size())), offset);
  }
  void sync(Handle file) override {
    if (is_due()) files_.fail_sync(file);
    fail("cannot sync", "a file", true);
    files_.sync(file);
  }
  void rename(const Path& from, const Path& to) override {
    fail("cannot rename a file to", to);
    files_.rename(from, to);
  }
  void unlink(const Path& file) override {
    fail("cannot remove", file);
    files_.unlink(file);
  }
  void make_folder(const Path& folder) override {
    fail("cannot create folder", folder);
    files_.make_folder(folder);
  }
  void remove_folder(const Path& folder) override {
    fail("cannot remove folder", folder);
    files_.remove_folder(folder);
  }
  std::vector<std::string> list(const Path& folder) override {
    fail("cannot list", folder);
    return files_.list(folder);
  }
  void sync_folder(const Path& folder) override {
    if (is_due()) files_.fail_sync(folder);
    fail("cannot sync folder", folder, true);
    files_.sync_folder(folder);
  }
  Bytes free_bytes(const Path& folder) override {
    fail("cannot look at the disk of", folder);
    return files_.free_bytes(folder);
  }

 private:
  bool is_now() const {
    return fault_ && (fault_->for_ever ? calls_ >= fault_->at : calls_ == fault_->at);
  }
  bool is_due() const { return is_now() && fault_->kind != Fault::Kind::short_count; }
  void fail(const char* what, const Path& path, bool is_sync = false) {
    if (fault_ && fault_->kind == Fault::Kind::sync && !is_sync) return;
    const bool due = is_due();
    is_short_ = is_now() && !due;
    ++calls_;
    num_failed_ += due || is_short_ ? 1 : 0;
    if (due) throw IoError(what, path, fault_->code);
  }
  std::size_t shortened(std::size_t size) const {
    return is_short_ ? std::min<std::size_t>(size, 1 + size / 2) : size;
  }

  CrashFs& files_;
  std::optional<Fault> fault_;
  int calls_ = 0, num_failed_ = 0;
  bool is_short_ = false;
};

}  // namespace spillway::testing
