#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spillway/units.h"
#include "trainer/storage/run_lock.h"

namespace spillway {

/// Where a run writes: events.jsonl, results.csv, trials/NAME/ and more. A file `.spillway` marks a
/// folder as written by a run; nothing in a folder without it is ever touched. Who changes anything
/// in the folder holds its lock.
class OutputFolder {
 public:
  /// What lies in the folder before a run begins there.
  enum class Content {
    nothing,
    leftovers,  ///< of a run that was ended before it began; they hold no work
    run,
    others  ///< files that no run has written
  };

  /// A path with `..` is resolved at once, so that folders which do not exist yet do not matter.
  explicit OutputFolder(const std::filesystem::path& path);

  Content content() const;
  /// Why a run cannot begin here and what to do; empty if it can. Leaves nothing behind.
  std::string problem(bool overwrite) const;
  /// Makes the folder and takes its lock. Throws InUse, IoError.
  RunLock lock() const;
  /// Marks the folder as a run's, makes a folder for each trial, and removes what an earlier run
  /// has written; other files stay. Call only with the lock, where there is no problem(). Throws
  /// IoError.
  void create(const std::vector<std::string>& trials) const;

  /// On the disk that it is on, or would be. Throws IoError.
  Bytes free_bytes() const;

  std::filesystem::path file(const std::string& name) const { return path_ / name; }
  std::filesystem::path weights_file(const std::string& trial) const;
  std::filesystem::path checkpoints(const std::string& trial) const;
  const std::filesystem::path& path() const { return path_; }
  /// Writes a text file, whole or not at all. Throws IoError.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path trial(const std::string& name) const { return path_ / "trials" / name; }
  void remove_earlier_run(std::vector<std::string> trials) const;

  std::filesystem::path path_;
};

}  // namespace spillway
