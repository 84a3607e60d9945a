#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runs/log/run_json.h"
#include "runs/log/run_log.h"

namespace spillway {

inline constexpr const char* kEventFile = "events.jsonl";

/// A run as its event log tells it.
struct LoggedRun {
  RunLog run;                       ///< without trials where the line that names them is lost
  std::vector<std::string> damage;  ///< what was left out: "line 258 does not match its hash"
};

/// Throws ConfigError where there is no such folder.
void require_folder(const std::filesystem::path& folder);

/// The run in `folder`, as far as its log goes. A last line without its end, as a crash or a run
/// that goes on leaves it, does not count; damaged lines are left out and named. A folder without a
/// log gives a run without trials. Throws ConfigError for what is no run's folder and for a log of
/// a newer format, and IoError.
LoggedRun read_log(const std::filesystem::path& folder);

/// As read_log(), but also throws ConfigError where the line that names the trials is lost.
LoggedRun read_run(const std::filesystem::path& folder);

/// The event log of a run that goes on: a line an event. Who writes it holds the folder's RunLock.
class EventLog {
 public:
  /// Makes the file, or empties it. Throws IoError.
  explicit EventLog(std::filesystem::path path);
  /// Goes on with a file that read_log() has read. Where lines were left out, the file is written
  /// anew, with a `repaired` event in their place. Throws IoError.
  EventLog(std::filesystem::path path, LoggedRun before);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Takes an event into run(); it reaches the file with the next flush().
  void add(const Json& event);
  /// Throws IoError, also where the file was removed or replaced.
  void flush();
  /// flush(), and a crash of the machine leaves what is in the file. Throws IoError.
  void sync();
  const RunLog& run() const { return run_; }

 private:
  void open(int flags);
  /// A line without its end, as a crash leaves it.
  void drop_torn_line();
  void require_in_place() const;

  std::filesystem::path path_;
  int file_ = -1;
  std::string pending_;
  RunLog run_;
};

}  // namespace spillway
