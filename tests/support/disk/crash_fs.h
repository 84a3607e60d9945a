#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/os/file_system.h"

namespace spillway::testing {

/// The contents of a disk: files and folders by number, and their names in folders.
struct Disk {
  struct Node {
    bool is_folder = false;
    std::string bytes;
    std::map<std::string, int> entries;
  };
  static constexpr int kRoot = 0;
  std::map<int, Node> nodes{{kRoot, {.is_folder = true}}};
};

/// Changes of a disk, each of which a crash may keep or lose.
struct Write {
  int node;
  Bytes offset;
  std::string bytes;
};
struct Grow {
  int node;
  Bytes size;
};
/// Names of one folder, changed together; without a node the name is removed.
struct Names {
  int node;
  std::vector<std::pair<std::string, std::optional<int>>> changes;
};
/// Earlier changes of the node are on the disk.
struct Sync {
  int node;
};
/// After a failed sync, unsynced data is lost even if later syncs succeed.
struct FailedSync {
  int node;
};
using Change = std::variant<Write, Grow, Names, Sync, FailedSync>;

/// A file system in memory that tracks what is synced, and can show what a crash of the machine
/// leaves. It promises no more than POSIX: bytes of a file are durable after its sync, names after
/// that of their folder, and unsynced changes are kept, lost, torn (at sectors or at any byte) or
/// reordered.
class CrashFs final : public FileSystem {
 public:
  explicit CrashFs(Disk disk = {}, Bytes capacity = 1_GiB);

  /// The number of changes so far. A crash can come before and after each.
  std::size_t num_changes() const { return log_.size(); }
  /// The disk after a crash at `change`. `random` decides about all unsynced changes; without it
  /// all are lost.
  Disk after_crash(std::size_t change, std::mt19937* random) const;
  /// The disk as programs see it, without a crash.
  const Disk& now() const { return now_; }
  void set_capacity(Bytes capacity) { capacity_ = capacity; }
  /// Makes a sync of a file or folder fail; its changes are lost.
  void fail_sync(Handle file) { change(FailedSync{node_of(file)}); }
  void fail_sync(const Path& folder) { change(FailedSync{find(folder)}); }

  Handle open(const Path& file) override;
  Handle create(const Path& file) override;
  void close(Handle file) override;
  Bytes size(Handle file) override;
  void preallocate(Handle file, Bytes bytes) override;
  Bytes pread(Handle file, std::span<std::byte> into, Bytes offset) override;
  Bytes pwrite(Handle file, std::span<const std::byte> bytes, Bytes offset) override;
  void sync(Handle file) override;
  void rename(const Path& from, const Path& to) override;
  void unlink(const Path& file) override;
  void make_folder(const Path& folder) override;
  void remove_folder(const Path& folder) override;
  std::vector<std::string> list(const Path& folder) override;
  void sync_folder(const Path& folder) override;
  Bytes free_bytes(const Path& folder) override;

 private:
  int find(const Path& path) const;
  int node_of(Handle file) const;
  int parent_of(const Path& path) const;
  std::string& bytes_of(Handle file) { return now_.nodes.at(node_of(file)).bytes; }
  int add(const Path& path, bool is_folder);
  void remove(const Path& path);
  Bytes used() const;
  Bytes free() const;
  void change(Change change);

  const Disk first_;
  Disk now_;
  std::vector<Change> log_;
  std::map<Handle, int> open_;
  Handle next_handle_ = 3;
  int next_node_;
  Bytes capacity_;
};

}  // namespace spillway::testing
