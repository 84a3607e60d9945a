#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runs/log/run_json.h"
#include "runs/log/run_log.h"

namespace spillway {

inline constexpr const char* kEventFile = "events.jsonl";

/// A run as read from its event log.
struct LoggedRun {
  RunLog run;                       ///< has no trials if the line that lists them is lost
  std::vector<std::string> damage;  ///< lines that were skipped: "line 258 does not match its hash"
};

/// Throws ConfigError if the folder does not exist.
void require_folder(const std::filesystem::path& folder);

/// Reads the event log of the run in `folder`. Ignores an incomplete last line; skips and reports
/// damaged lines. A folder without a log gives a run without trials. Throws ConfigError if `folder`
/// is not a folder or the log has a newer format, and IoError.
LoggedRun read_log(const std::filesystem::path& folder);

/// Like read_log(), but also throws ConfigError if the line that lists the trials is lost.
LoggedRun read_run(const std::filesystem::path& folder);

/// The event log of a running run: one line per event. The writer must hold the folder's RunLock.
class EventLog {
 public:
  /// Creates the file, or empties it. Throws IoError.
  explicit EventLog(std::filesystem::path path);
  /// Continues a file that read_log() has read. Rewrites it if it has an older format, or with a
  /// `repaired` event in the place of damaged lines. Throws IoError.
  EventLog(std::filesystem::path path, LoggedRun before);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Applies an event to run(). The next flush() writes it.
  void add(const Json& event);
  /// Throws IoError, and Error if the file was removed or replaced.
  void flush();
  /// Flushes, then waits until the file is on stable storage. Throws IoError.
  void sync();
  const RunLog& run() const { return run_; }

 private:
  void open(int flags);
  /// Cuts off the incomplete last line that a crash leaves.
  void drop_incomplete_line();
  void require_in_place() const;

  std::filesystem::path path_;
  int file_ = -1;
  std::string pending_;
  RunLog run_;
};

}  // namespace spillway
