#pragma once

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/os/open_file.h"
#include "tests/support/disk/crash_fs.h"
#include "trainer/checkpoint/checkpoint_store.h"

namespace spillway::testing {

inline const FileSystem::Path kCheckpoints = "/checkpoints";

/// Bytes that differ from every shift or swap of themselves, and between seeds.
inline std::string made_up_bytes(std::size_t size, std::uint64_t seed) {
  auto state = static_cast<std::uint32_t>(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return bytes;
}

/// The state of a job at a step: two tensors over several blocks, moments, a short text and an
/// empty file.
inline GenerationContent made_up_content(std::uint64_t step,
                                         const std::string& job = "checkpoints") {
  const auto tensors = [&](const char* name, std::uint64_t seed) {
    const std::vector<TensorEntry> entries{{.name = "a", .dtype = "F32", .shape = {37, 10}},
                                           {.name = "n", .dtype = "I64", .shape = {}}};
    return safetensors_file(
        name, entries, [=](const TensorEntry& tensor, std::span<std::byte> into, Bytes offset) {
          const auto bytes = made_up_bytes(tensor.bytes(), step * 10 + seed);
          std::memcpy(into.data(), bytes.data() + offset, into.size());
        });
  };
  return {.job = job,
          .step = step,
          .build = "test",
          .contract = {{"seed", "7"}},
          .files = {tensors("weights.safetensors", 1), tensors("moments.safetensors", 2),
                    bytes_file("state.json", "{\"step\":" + std::to_string(step) + "}"),
                    bytes_file("empty", "")}};
}

/// All bytes of a file to be written.
inline std::string bytes_of(const GenerationFile& file) {
  std::string bytes(file.bytes, '\0');
  file.fill(std::as_writable_bytes(std::span(bytes)), 0);
  return bytes;
}

/// True if a generation equals the state at the step that it names, byte for byte.
inline bool is_right(const Generation& generation, const std::string& job = "checkpoints") {
  const auto& manifest = generation.manifest();
  const auto content = made_up_content(manifest.step, job);
  bool right = manifest.job == job && manifest.contract == content.contract &&
               manifest.files.size() == content.files.size();
  for (const auto& file : content.files)
    right = right && generation.has(file.name) &&
            bytes_of(generation.file(file.name)) == bytes_of(file);
  return right;
}

/// An acknowledgement to a job, for comparison after a crash.
struct Recorded {
  std::size_t change;  ///< change of the disk before which it was given
  std::uint64_t step;
};

/// Jobs that write checkpoints to one disk, each in a folder of its own.
class CheckpointRun {
 public:
  static constexpr Bytes kBlock = 600;

  /// Writes through `files`, which change `disk`.
  CheckpointRun(CrashFs& disk, FileSystem& files) : disk_(disk), files_(files) {}
  explicit CheckpointRun(CrashFs& disk) : CheckpointRun(disk, disk) {}

  CheckpointStore open(const FileSystem::Path& folder = kCheckpoints, int keep = 2) {
    recorded_.try_emplace(folder);
    keep_[folder] = keep;
    return {files_, folder, {.keep = keep, .block_bytes = kBlock}};
  }
  void write(CheckpointStore& store, std::uint64_t step,
             const FileSystem::Path& folder = kCheckpoints) {
    store.write(made_up_content(step, folder.filename()), [&](std::uint64_t) {
      recorded_[folder].push_back({disk_.num_changes(), step});
    });
  }

  const std::map<FileSystem::Path, std::vector<Recorded>>& recorded() const { return recorded_; }
  int keep(const FileSystem::Path& folder) const { return keep_.at(folder); }
  CrashFs& disk() { return disk_; }

 private:
  CrashFs& disk_;
  FileSystem& files_;
  std::map<FileSystem::Path, std::vector<Recorded>> recorded_;
  std::map<FileSystem::Path, int> keep_;
};

}  // namespace spillway::testing
