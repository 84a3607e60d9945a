#pragma once

#include <filesystem>
#include <string>

#include "apps/run_json.h"
#include "apps/run_log.h"

namespace spillway {

inline constexpr const char* kEventFile = "events.jsonl";

/// The event log of a run that is going on: a line an event. As long as this lives, is_live() is
/// true of the file, also for other processes.
class EventLog {
 public:
  /// Makes the file, or empties it. Throws IoError.
  explicit EventLog(std::filesystem::path path);
  /// Goes on with a file that read_run() has read as `run`. Throws IoError, and Error where another
  /// process writes it.
  EventLog(std::filesystem::path path, RunLog run);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Takes an event into run(); it reaches the file with the next flush().
  void add(const Json& event);
  /// Throws IoError.
  void flush();
  /// flush(), and a crash of the machine leaves what is in the file. Throws IoError.
  void sync();
  const RunLog& run() const { return run_; }

 private:
  /// A line without its end, as a crash leaves it.
  void drop_torn_line();

  std::filesystem::path path_;
  int file_ = -1;
  std::string pending_;
  RunLog run_;
};

/// Whether an EventLog somewhere is writing the file.
bool is_live(const std::filesystem::path& file);

/// Throws ConfigError for a folder that holds no event log.
void require_run(const std::filesystem::path& folder);

/// Whether it holds one that has at least begun.
bool has_begun(const std::filesystem::path& folder);

/// The run whose outputs lie in `folder`, as far as its log goes: a last line without its end, as
/// left by a crash or by a run that goes on, does not count. Throws ConfigError for what is no run
/// or a damaged log.
RunLog read_run(const std::filesystem::path& folder);

}  // namespace spillway
