#include "tests/support/disk/crash_fs.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <stdexcept>

#include "spillway/error.h"

namespace spillway::testing {
namespace {

constexpr Bytes kSector = 512;

using Random = std::mt19937;

Bytes below(Random& random, Bytes n) { return random() % n; }

void grow(std::string& bytes, Bytes size) {
  if (bytes.size() < size) bytes.resize(size, '\0');
}

void make_part(std::string& bytes, const Write& write, Bytes begin, Bytes end) {
  bytes.replace(write.offset + begin, end - begin, write.bytes, begin, end - begin);
}

void make(Disk& disk, const Change& change) {
  if (const auto* write = std::get_if<Write>(&change)) {
    auto& bytes = disk.nodes[write->node].bytes;
    grow(bytes, write->offset + write->bytes.size());
    make_part(bytes, *write, 0, write->bytes.size());
  } else if (const auto* growth = std::get_if<Grow>(&change)) {
    grow(disk.nodes[growth->node].bytes, growth->size);
  } else if (const auto* names = std::get_if<Names>(&change)) {
    auto& entries = disk.nodes[names->node].entries;
    for (const auto& [name, node] : names->changes) {
      if (node)
        entries[name] = *node;
      else
        entries.erase(name);
    }
  }
}

/// Some sectors reach the disk; one may keep garbage.
void make_sectors(std::string& bytes, const Write& write, Random& random) {
  grow(bytes, write.offset + write.bytes.size());
  for (Bytes begin = 0; begin < write.bytes.size();) {
    const Bytes sector_end = (write.offset + begin) / kSector * kSector + kSector - write.offset;
    const Bytes end = std::min<Bytes>(sector_end, write.bytes.size());
    const auto fate = below(random, 8);
    if (fate < 4) make_part(bytes, write, begin, end);
    if (fate == 7) bytes.replace(write.offset + begin, end - begin, end - begin, '\xA5');
    begin = end;
  }
}

void make_torn(Disk& disk, const Write& write, Random& random) {
  auto& bytes = disk.nodes[write.node].bytes;
  const Bytes cut = below(random, write.bytes.size() + 1);
  switch (below(random, 3)) {
    case 0:
      grow(bytes, write.offset + cut);
      return make_part(bytes, write, 0, cut);
    case 1:
      grow(bytes, write.offset + write.bytes.size());
      return make_part(bytes, write, cut, write.bytes.size());
    default:
      return make_sectors(bytes, write, random);
  }
}

/// Unsynced changes: kept, lost or, for bytes, torn.
void make_some(Disk& disk, const Change& change, Random& random) {
  const auto* write = std::get_if<Write>(&change);
  const auto fate = below(random, write != nullptr ? 3 : 2);
  if (fate == 1) make(disk, change);
  if (fate == 2) make_torn(disk, *write, random);
}

int node_of(const Change& change) {
  return std::visit([](const auto& any) { return any.node; }, change);
}

/// For each of the first `count` changes, whether a later one has made it durable.
std::vector<bool> synced(const std::vector<Change>& log, std::size_t count) {
  std::vector<bool> durable(count);
  std::set<int> nodes;
  for (std::size_t i = count; i-- > 0;) {
    const int node = node_of(log[i]);
    if (std::holds_alternative<Sync>(log[i])) nodes.insert(node);
    if (std::holds_alternative<FailedSync>(log[i])) nodes.erase(node);
    durable[i] = nodes.contains(node);
  }
  return durable;
}

}  // namespace

CrashFs::CrashFs(Disk disk, Bytes capacity)
    : first_(std::move(disk)),
      now_(first_),
      next_node_(first_.nodes.rbegin()->first + 1),
      capacity_(capacity) {}

Disk CrashFs::after_crash(std::size_t change, std::mt19937* random) const {
  const auto durable = synced(log_, change);
  Disk disk = first_;
  for (int node = first_.nodes.rbegin()->first + 1; node < next_node_; ++node)
    disk.nodes[node].is_folder = now_.nodes.at(node).is_folder;
  for (std::size_t i = 0; i < change; ++i) {
    if (durable[i])
      make(disk, log_[i]);
    else if (random != nullptr)
      make_some(disk, log_[i], *random);
  }
  return disk;
}

void CrashFs::change(Change change) {
  make(now_, change);
  log_.push_back(std::move(change));
}

int CrashFs::find(const Path& path) const {
  int node = Disk::kRoot;
  for (const auto& part : path.relative_path()) {
    const auto& folder = now_.nodes.at(node);
    if (!folder.is_folder) throw IoError("cannot reach", path, ENOTDIR);
    const auto entry = folder.entries.find(part.string());
    if (entry == folder.entries.end()) throw IoError("cannot find", path, ENOENT);
    node = entry->second;
  }
  return node;
}

int CrashFs::parent_of(const Path& path) const {
  const int parent = find(path.parent_path());
  if (!now_.nodes.at(parent).is_folder) throw IoError("cannot reach", path, ENOTDIR);
  return parent;
}

int CrashFs::node_of(Handle file) const {
  const auto found = open_.find(file);
  if (found == open_.end()) throw std::logic_error("no such open file");
  return found->second;
}

FileSystem::Handle CrashFs::open(const Path& file) {
  const int node = find(file);
  if (now_.nodes.at(node).is_folder) throw IoError("cannot open", file, EISDIR);
  open_[next_handle_] = node;
  return next_handle_++;
}

int CrashFs::add(const Path& path, bool is_folder) {
  const int parent = parent_of(path);
  const std::string name = path.filename();
  if (now_.nodes.at(parent).entries.contains(name)) throw IoError("cannot create", path, EEXIST);
  if (free() == 0) throw IoError("cannot create", path, ENOSPC);
  now_.nodes[next_node_].is_folder = is_folder;
  change(Names{parent, {{name, next_node_}}});
  return next_node_++;
}

FileSystem::Handle CrashFs::create(const Path& file) {
  open_[next_handle_] = add(file, false);
  return next_handle_++;
}

void CrashFs::close(Handle file) {
  node_of(file);
  open_.erase(file);
}

Bytes CrashFs::size(Handle file) { return bytes_of(file).size(); }

Bytes CrashFs::used() const {
  Bytes bytes = 0;
  for (std::vector<int> folders{Disk::kRoot}; !folders.empty();) {
    const int folder = folders.back();
    folders.pop_back();
    for (const auto& [name, node] : now_.nodes.at(folder).entries) {
      bytes += now_.nodes.at(node).bytes.size();
      if (now_.nodes.at(node).is_folder) folders.push_back(node);
    }
  }
  return bytes;
}

Bytes CrashFs::free() const { return capacity_ - std::min(capacity_, used()); }

void CrashFs::preallocate(Handle file, Bytes bytes) {
  const Bytes size = bytes_of(file).size();
  if (bytes > size && bytes - size > free()) throw IoError("cannot reserve", "a file", ENOSPC);
  change(Grow{node_of(file), bytes});
}

Bytes CrashFs::pread(Handle file, std::span<std::byte> into, Bytes offset) {
  const auto& bytes = bytes_of(file);
  if (offset >= bytes.size()) return 0;
  const Bytes count = std::min<Bytes>(into.size(), bytes.size() - offset);
  std::copy_n(std::as_bytes(std::span(bytes)).begin() + static_cast<std::ptrdiff_t>(offset), count,
              into.begin());
  return count;
}

Bytes CrashFs::pwrite(Handle file, std::span<const std::byte> bytes, Bytes offset) {
  const Bytes size = bytes_of(file).size(), end = offset + bytes.size();
  if (end > size && end - size > free()) throw IoError("cannot write", "a file", ENOSPC);
  change(Write{node_of(file), offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  return bytes.size();
}

void CrashFs::sync(Handle file) { change(Sync{node_of(file)}); }

void CrashFs::rename(const Path& from, const Path& to) {
  const int parent = parent_of(from), node = find(from);
  if (parent_of(to) != parent) throw IoError("cannot rename a file to", to, EXDEV);
  const auto& entries = now_.nodes.at(parent).entries;
  if (const auto old = entries.find(to.filename()); old != entries.end()) {
    const auto& target = now_.nodes.at(old->second);
    if (target.is_folder && !now_.nodes.at(node).is_folder)
      throw IoError("cannot rename a file to", to, EISDIR);
    if (!target.entries.empty()) throw IoError("cannot rename a file to", to, ENOTEMPTY);
  }
  change(Names{parent, {{from.filename(), std::nullopt}, {to.filename(), node}}});
}

void CrashFs::remove(const Path& path) {
  change(Names{parent_of(path), {{path.filename(), std::nullopt}}});
}

void CrashFs::unlink(const Path& file) {
  if (now_.nodes.at(find(file)).is_folder) throw IoError("cannot remove", file, EISDIR);
  remove(file);
}

void CrashFs::make_folder(const Path& folder) { add(folder, true); }

void CrashFs::remove_folder(const Path& folder) {
  const auto& node = now_.nodes.at(find(folder));
  if (!node.is_folder) throw IoError("cannot remove folder", folder, ENOTDIR);
  if (!node.entries.empty()) throw IoError("cannot remove folder", folder, ENOTEMPTY);
  remove(folder);
}

std::vector<std::string> CrashFs::list(const Path& folder) {
  const auto& node = now_.nodes.at(find(folder));
  if (!node.is_folder) throw IoError("cannot list", folder, ENOTDIR);
  std::vector<std::string> names;
  for (const auto& [name, entry] : node.entries) names.push_back(name);
  return names;
}

void CrashFs::sync_folder(const Path& folder) { change(Sync{find(folder)}); }

Bytes CrashFs::free_bytes(const Path& folder) {
  find(folder);
  return free();
}

}  // namespace spillway::testing
