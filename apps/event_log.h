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
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Takes an event into run(); it reaches the file with the next flush().
  void add(const Json& event);
  /// Throws IoError.
  void flush();
  const RunLog& run() const { return run_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::string pending_;
  RunLog run_;
};

/// Whether an EventLog somewhere is writing the file.
bool is_live(const std::filesystem::path& file);

/// The run whose outputs lie in `folder`, as far as its log goes: a last line without its end, as
/// left by a crash or by a run that goes on, does not count. Throws ConfigError for what is no run
/// or a damaged log.
RunLog read_run(const std::filesystem::path& folder);

}  // namespace spillway
