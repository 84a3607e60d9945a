#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/os/file_system.h"
#include "trainer/checkpoint/generation.h"
#include "trainer/checkpoint/generation_file.h"

namespace spillway {

/// Numbers of all generations in a folder, ascending, also of damaged ones. Throws IoError.
std::vector<std::uint64_t> generations_in(FileSystem& files, const FileSystem::Path& folder);
/// The folder of one generation.
FileSystem::Path generation_path(const FileSystem::Path& folder, std::uint64_t number);

/// A problem of a generation.
struct Finding {
  std::uint64_t generation = 0;
  std::string problem;
};

struct CheckpointOptions {
  int keep = 2;  ///< number of newest generations to keep, at least 1
  Bytes block_bytes = 1_MiB;
};

/// The generations of one job's checkpoints, in a folder of their own. After a crash of the program
/// or the machine a generation is complete or absent. An older one is removed only when `keep`
/// newer ones have been read back completely. For one thread of one process at a time: the caller
/// holds the lock of the folder. Throws IoError.
class CheckpointStore {
 public:
  /// Creates the folder if it is missing, and removes unfinished files of a crash.
  CheckpointStore(FileSystem& files, FileSystem::Path folder, CheckpointOptions options = {});

  /// As generations_in().
  std::vector<std::uint64_t> generations() const;

  struct Newest {
    std::optional<Generation> generation;  ///< none if none was ever written
    std::vector<Finding> findings;         ///< newer ones that are damaged: report them
  };
  /// The newest intact generation; reads every byte of it. Throws CorruptData with all findings if
  /// there are generations and none is intact; NewerFormat.
  Newest open_newest();
  /// Reads every byte of all generations.
  std::vector<Finding> verify() const;

  struct Committed {
    std::uint64_t generation = 0;
    std::vector<Finding> findings;  ///< older ones that could not be read back or removed
  };
  /// Writes a new generation, calls `record` with its number once it is durable, then removes older
  /// ones. Throws what write_generation() and `record` throw, and OutOfMemory of the disk tier. If
  /// it throws before `record`, older generations are unchanged, and a new one can be written.
  Committed write(const GenerationContent& content,
                  const std::function<void(std::uint64_t)>& record = {});

 private:
  FileSystem::Path path_of(std::uint64_t number) const;
  FileSystem::Path temporary_of(std::uint64_t number) const;
  void require_space(Bytes bytes) const;
  void remove_leftovers();
  void remove_temporary(std::uint64_t number);
  void remove(std::uint64_t number);
  void abandon(std::uint64_t number, bool is_renamed);
  bool is_sound(std::uint64_t number, std::vector<Finding>& findings);
  std::vector<Finding> prune();

  FileSystem& files_;
  const FileSystem::Path folder_;
  const CheckpointOptions options_;
  std::uint64_t last_ = 0;           ///< last number used, including failed writes
  std::set<std::uint64_t> durable_;  ///< their names are known to be on stable storage
  std::set<std::uint64_t> sound_;    ///< this object has read every byte of them
};

}  // namespace spillway
