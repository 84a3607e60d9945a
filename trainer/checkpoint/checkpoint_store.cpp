#include "trainer/checkpoint/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <ranges>
#include <utility>

#include "spillway/error.h"
#include "trainer/checkpoint/generation_writer.h"

namespace spillway {
namespace {

using Path = FileSystem::Path;

constexpr const char* kTemporary = ".tmp";

std::string name_of(std::uint64_t number) { return fmt::format("{:012}", number); }

/// Nothing if a generation cannot have this name.
std::optional<std::uint64_t> generation_number(const std::string& name) {
  constexpr std::size_t kMostDigits = 18;
  if (name.size() > kMostDigits || name.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const std::uint64_t number = name.empty() ? 0 : std::stoull(name);
  return name_of(number) == name ? std::optional(number) : std::nullopt;
}

Path parent_of(const Path& folder) {
  const auto parent = folder.parent_path();
  return parent.empty() ? Path(".") : parent;
}

/// True if the file system works, but has lost a file or cannot read it.
bool is_damage(const IoError& error) {
  return error.code == ENOENT || error.code == EIO || error.code == EISDIR ||
         error.code == ENOTDIR || error.code == ELOOP;
}

void make_folder(FileSystem& files, const Path& folder) {
  try {
    files.make_folder(folder);
  } catch (const IoError& error) {
    if (error.code != EEXIST) throw;
  }
}

/// If the sync fails the name may be lost, so a new folder is removed again: a later store would
/// take it for durable. A folder that was durable before is not empty, and stays.
void make_durable_folder(FileSystem& files, const Path& folder) {
  make_folder(files, folder);
  try {
    files.sync_folder(parent_of(folder));
  } catch (const IoError&) {
    try {
      files.remove_folder(folder);
    } catch (const IoError&) {
    }
    throw;
  }
}

/// Numbers of the names in a folder that end with `suffix`, ascending.
std::vector<std::uint64_t> numbers_in(FileSystem& files, const Path& folder,
                                      const std::string& suffix) {
  std::vector<std::uint64_t> found;
  for (const auto& name : files.list(folder)) {
    if (!name.ends_with(suffix)) continue;
    if (const auto number = generation_number(name.substr(0, name.size() - suffix.size())))
      found.push_back(*number);
  }
  std::ranges::sort(found);
  return found;
}

std::string summary(const std::vector<Finding>& findings) {
  std::string text = "has no usable checkpoint:";
  for (const auto& finding : findings)
    text += fmt::format("\n  checkpoint {}: {}", finding.generation, finding.problem);
  return text;
}

}  // namespace

std::vector<std::uint64_t> generations_in(FileSystem& files, const Path& folder) {
  return numbers_in(files, folder, "");
}

Path generation_path(const Path& folder, std::uint64_t number) { return folder / name_of(number); }

CheckpointStore::CheckpointStore(FileSystem& files, Path folder, CheckpointOptions options)
    : files_(files),
      folder_(folder.has_filename() ? std::move(folder) : folder.parent_path()),
      options_(options) {
  assert(options_.keep >= 1);
  make_durable_folder(files_, folder_);
  remove_leftovers();
  const auto found = generations();
  durable_.insert(found.begin(), found.end());
}

Path CheckpointStore::path_of(std::uint64_t number) const {
  return generation_path(folder_, number);
}

Path CheckpointStore::temporary_of(std::uint64_t number) const {
  return folder_ / (name_of(number) + kTemporary);
}

std::vector<std::uint64_t> CheckpointStore::generations() const {
  return generations_in(files_, folder_);
}

void CheckpointStore::remove_leftovers() {
  for (const auto number : numbers_in(files_, folder_, kTemporary)) remove_temporary(number);
  files_.sync_folder(folder_);
}

void CheckpointStore::remove_temporary(std::uint64_t number) {
  const Path folder = temporary_of(number);
  for (const auto& name : files_.list(folder)) files_.unlink(folder / name);
  files_.remove_folder(folder);
}

/// A generation under its own name must be complete, so it loses the name first.
void CheckpointStore::remove(std::uint64_t number) {
  files_.rename(path_of(number), temporary_of(number));
  files_.sync_folder(folder_);
  remove_temporary(number);
}

CheckpointStore::Newest CheckpointStore::open_newest() {
  Newest newest;
  for (const auto number : std::views::reverse(generations())) {
    try {
      Generation generation(files_, path_of(number), number);
      generation.verify();
      sound_.insert(number);
      newest.generation = std::move(generation);
      return newest;
    } catch (const CorruptData& error) {
      newest.findings.push_back({number, error.what()});
    } catch (const IoError& error) {
      if (!is_damage(error)) throw;
      newest.findings.push_back({number, error.what()});
    }
  }
  if (!newest.findings.empty()) throw CorruptData(folder_, summary(newest.findings));
  return newest;
}

std::vector<Finding> CheckpointStore::verify() const {
  std::vector<Finding> findings;
  for (const auto number : generations()) {
    try {
      Generation(files_, path_of(number), number).verify();
    } catch (const Error& error) {
      findings.push_back({number, error.what()});
    }
  }
  return findings;
}

void CheckpointStore::require_space(Bytes bytes) const {
  const Bytes available = files_.free_bytes(folder_);
  if (bytes > available)
    throw OutOfMemory(Tier::disk, bytes, available,
                      fmt::format("a checkpoint in {}", folder_.string()));
}

CheckpointStore::Committed CheckpointStore::write(
    const GenerationContent& content, const std::function<void(std::uint64_t)>& record) {
  remove_leftovers();
  require_space(generation_bytes(content, options_.block_bytes));
  const auto there = generations();
  const std::uint64_t number = last_ = std::max(last_, there.empty() ? 0 : there.back()) + 1;
  bool is_renamed = false;
  try {
    files_.make_folder(temporary_of(number));
    write_generation(files_, temporary_of(number), content, options_.block_bytes);
    files_.rename(temporary_of(number), path_of(number));
    is_renamed = true;
    files_.sync_folder(folder_);
  } catch (...) {
    abandon(number, is_renamed);
    throw;
  }
  durable_.insert(number);
  if (record) record(number);
  return {number, prune()};
}

void CheckpointStore::abandon(std::uint64_t number, bool is_renamed) {
  try {
    if (is_renamed)
      remove(number);
    else
      remove_temporary(number);
  } catch (const IoError&) {
    // The next write or the next opening removes the rest; until then nobody reads it.
  }
}

bool CheckpointStore::is_sound(std::uint64_t number, std::vector<Finding>& findings) {
  if (sound_.contains(number)) return true;
  try {
    Generation(files_, path_of(number), number).verify();
    return sound_.insert(number).second;
  } catch (const Error& error) {
    findings.push_back({number, error.what()});
    return false;
  }
}

std::vector<Finding> CheckpointStore::prune() {
  std::vector<Finding> findings;
  std::uint64_t current = 0;
  try {
    const auto there = generations();
    int kept = 0;
    for (const auto number : std::views::reverse(there)) {
      current = number;
      if (there.size() <= static_cast<std::size_t>(options_.keep)) break;
      if (kept == options_.keep)
        remove(number);
      else
        kept += durable_.contains(number) && is_sound(number, findings) ? 1 : 0;
    }
  } catch (const IoError& error) {
    findings.push_back({current, error.what()});
  }
  return findings;
}

}  // namespace spillway
