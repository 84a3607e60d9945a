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

/// Numbers of the generations that lie in a folder, ascending, sound or not. Throws IoError.
std::vector<std::uint64_t> generations_in(FileSystem& files, const FileSystem::Path& folder);
/// Where one of them lies.
FileSystem::Path generation_path(const FileSystem::Path& folder, std::uint64_t number);

/// What is wrong with a generation.
struct Finding {
  std::uint64_t generation = 0;
  std::string problem;
};

struct CheckpointOptions {
  int keep = 2;  ///< generations that are never taken away, at least 1
  Bytes block_bytes = 1_MiB;
};

/// The generations of checkpoints of one job, in a folder of their own. A generation is there whole
/// or not at all, whatever ends the program or the machine; an older one goes only when `keep`
/// newer ones have been read back whole. For one thread of one process at a time: who opens a
/// folder holds its lock. Throws IoError.
class CheckpointStore {
 public:
  /// Makes the folder where there is none, and removes what a crash has left unfinished.
  CheckpointStore(FileSystem& files, FileSystem::Path folder, CheckpointOptions options = {});

  /// Numbers of those that lie there, ascending, sound or not.
  std::vector<std::uint64_t> generations() const;

  struct Newest {
    std::optional<Generation> generation;  ///< none where none was ever written
    std::vector<Finding> findings;         ///< newer ones that are damaged: to be said loudly
  };
  /// The newest generation that verifies, every byte of which was read. Throws CorruptData with all
  /// findings where there are generations and none is sound; NewerFormat.
  Newest open_newest();
  /// Reads every byte of all.
  std::vector<Finding> verify() const;

  struct Committed {
    std::uint64_t generation = 0;
    std::vector<Finding> findings;  ///< of older ones, which were to be read back or removed
  };
  /// Writes a new generation, which is durable when `record` is called with its number; then takes
  /// away older ones. Throws what write_generation() and `record` do, and OutOfMemory of the disk
  /// tier. If it throws before `record`, older generations are as they were and this one counts for
  /// nothing; writing can go on with a new one.
  Committed write(const GenerationContent& content,
                  const std::function<void(std::uint64_t)>& record = {});

 private:
  FileSystem::Path path_of(std::uint64_t number) const;
  FileSystem::Path temporary_of(std::uint64_t number) const;
  std::vector<std::uint64_t> numbers(const std::string& suffix) const;
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
  std::uint64_t last_ = 0;           ///< number that was used last, whatever became of it
  std::set<std::uint64_t> durable_;  ///< whose names are known to be on stable storage
  std::set<std::uint64_t> sound_;    ///< that this object has read whole
};

}  // namespace spillway
