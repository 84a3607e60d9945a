#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runs/log/trial_names.h"
#include "spillway/units.h"
#include "trainer/storage/run_lock.h"

namespace spillway {

/// Where `spillway report` writes by default.
inline constexpr const char* kReportFile = "report.html";

/// The folder to which a run writes: events.jsonl, results.csv, trials/NAME/ and more. The file
/// `.spillway` marks it as a run's; a folder without that file is never changed. Changing anything
/// in the folder requires its lock.
class OutputFolder {
 public:
  /// What the folder contains before a run starts there.
  enum class Content {
    nothing,
    leftovers,  ///< of a run that was killed before it started; they hold no work
    run,
    others  ///< files that were not written by a run
  };

  /// Resolves `..` in the path at once, so that missing folders on the way do not matter.
  explicit OutputFolder(const std::filesystem::path& path);

  Content content() const;
  /// Why a run cannot start here and what to do; empty if it can. Changes nothing.
  std::string problem(bool overwrite) const;
  /// Throws InUse if another process has locked the folder.
  void require_free() const;
  /// Creates the folder and locks it. Throws InUse, IoError.
  RunLock lock() const;
  /// Marks the folder as a run's, removes the files of an earlier run, and creates a folder for
  /// each trial; other files stay. Requires the lock and an empty problem(). Throws IoError.
  void create(const std::vector<std::string>& trials) const;

  /// Creates a folder for each trial that a run gets later. Requires the lock. Throws IoError.
  void add_trials(const std::vector<std::string>& trials) const;

  /// Free space on the folder's disk. Throws IoError.
  Bytes free_bytes() const;

  std::filesystem::path file(const std::string& name) const { return path_ / name; }
  std::filesystem::path weights_file(const std::string& trial) const;
  std::filesystem::path checkpoints(const std::string& trial) const;
  const std::filesystem::path& path() const { return path_; }
  /// Writes a text file atomically. Throws IoError.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path trial(const std::string& name) const { return trial_folder(path_, name); }
  void remove_earlier_run(std::vector<std::string> trials) const;

  std::filesystem::path path_;
};

}  // namespace spillway
