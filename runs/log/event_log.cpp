#include "runs/log/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/os/file_system.h"
#include "core/os/open_file.h"
#include "runs/log/event_json.h"
#include "runs/log/event_line.h"
#include "runs/log/lines.h"
#include "spillway/error.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& problem) { throw ConfigError("", 0, problem); }

/// {"event": "repaired"} replaces damaged lines: `num_lost` events, the last one with this
/// sequence.
Json repaired_event(std::uint64_t sequence, std::uint64_t num_lost) {
  return {{"event", kRepairedEvent}, {"sequence", sequence}, {"events", num_lost}};
}

/// Reads a log line by line. It counts damaged lines and replaces them by a `repaired` event in the
/// lines that it keeps.
class LogReader {
 public:
  using Keep = std::function<void(std::string_view line)>;
  /// Calls `keep` with each valid line, without its newline.
  LogReader(LoggedRun& into, Keep keep) : into_(into), keep_(std::move(keep)) {}

  void take(const std::string& line) {
    ++number_;
    Json event;
    try {
      event = parsed(line);
      bridge(event);
      into_.run.apply(event);
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {
      return skip(error.what());
    } catch (const Json::exception&) {
      return skip("is not an event");
    }
    keep_(line);
  }

 private:
  void skip(const std::string& problem) {
    into_.damage.push_back(fmt::format("line {} {}", number_, problem));
    ++num_skipped_;
  }

  Json parsed(const std::string& line) const {
    auto [event, has_xxh3] = parse_event_line(line);
    const bool is_first = event.value("event", "") == "run";
    const int format = is_first ? event.value("format", 0) : into_.run.format;
    if (format > kEventFormat) {
      throw NewerFormat("the log", static_cast<std::uint64_t>(format), kEventFormat);
    }
    if (format >= kHashedFormat && !has_xxh3) throw Error("has no hash");
    return event;
  }

  /// Notes the events that are missing before this one.
  void bridge(const Json& event) {
    const auto found = event.find("sequence");
    if (found == event.end() || !found->is_number_unsigned()) return;
    const auto sequence = found->get<std::uint64_t>();
    const bool is_repaired = event.value("event", "") == kRepairedEvent;
    const std::uint64_t next = into_.run.sequence + 1;
    const bool lost_restart = into_.run.actual && sequence == next;
    if (is_repaired || into_.run.trials.empty()) return;
    if (sequence <= next && !lost_restart) return;
    if (num_skipped_ == 0 && !lost_restart) {
      into_.damage.push_back(
          fmt::format("events {} to {} are missing before line {}", next, sequence - 1, number_));
    }
    const Json repaired = repaired_event(sequence - 1, sequence - next);
    into_.run.apply(repaired);
    std::string line = event_line(repaired);
    line.pop_back();
    keep_(line);
    num_skipped_ = 0;
  }

  LoggedRun& into_;
  const Keep keep_;
  int number_ = 0;
  std::uint64_t num_skipped_ = 0;  ///< since the last valid line
};

/// A line, without its newline, as this format has it.
std::string line_of_now(std::string_view line) {
  auto [event, has_xxh3] = parse_event_line(line);
  const bool is_older = event.at("event") == "run" && event.at("format") < kEventFormat;
  if (is_older) event["format"] = kEventFormat;
  return is_older || !has_xxh3 ? event_line(event) : std::string(line) + "\n";
}

/// Nullopt if there is no such file.
std::optional<LoggedRun> read_file(const fs::path& file, const LogReader::Keep& keep) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error))) return std::nullopt;
  if (!fs::is_regular_file(fs::symlink_status(file, error)))
    fail(file.string() + " is not a regular file; remove it");
  std::ifstream in(file, std::ios::binary);
  if (!in.is_open()) throw IoError("cannot open", file, errno);
  LoggedRun logged;
  LogReader reader(logged, keep);
  for (std::string line; read_line(in, line);) reader.take(line);
  return logged;
}

}  // namespace

void require_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  fail(fmt::format("'{}' {}; name the folder of a run, such as runs/NAME", folder.string(),
                   fs::exists(folder, error) ? "is a file" : "does not exist"));
}

LoggedRun read_log(const fs::path& folder) {
  require_folder(folder);
  try {
    return read_file(folder / kEventFile, [](std::string_view) {}).value_or(LoggedRun{});
  } catch (const NewerFormat& newer) {
    fail((folder / kEventFile).string() + ": " + newer.what());
  }
}

LoggedRun read_run(const fs::path& folder) {
  LoggedRun logged = read_log(folder);
  if (!logged.run.trials.empty()) return logged;
  const std::string file = (folder / kEventFile).string();
  std::error_code error;
  if (!fs::exists(folder / kEventFile, error)) {
    fail(
        fmt::format("'{}' is not the folder of a run: it has no {}; name the folder of a run, "
                    "such as runs/NAME",
                    folder.string(), kEventFile));
  }
  if (logged.damage.empty()) fail(file + " has no complete line; the run was killed as it started");
  fail(
      fmt::format("{}: {}, and that line lists the trials; 'spillway resume {}' rebuilds the log "
                  "from the checkpoints",
                  file, logged.damage.front(), folder.string()));
}

EventLog::EventLog(fs::path path) : path_(std::move(path)) { open(O_CREAT | O_TRUNC); }

EventLog::EventLog(fs::path path, LoggedRun before)
    : path_(std::move(path)), run_(std::move(before.run)) {
  const bool is_older = !run_.trials.empty() && run_.format < kEventFormat;
  if (is_older || !before.damage.empty()) {
    AtomicFile rewritten(path_);
    read_file(path_, [&](std::string_view line) { rewritten.write(line_of_now(line)); });
    rewritten.commit();
  }
  if (is_older) run_.format = kEventFormat;
  open(0);
  drop_incomplete_line();
}

void EventLog::open(int flags) {
  file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
  if (file_ < 0) throw IoError("cannot open", path_, errno);
}

void EventLog::drop_incomplete_line() {
  const OpenFile log = OpenFile::open(posix_file_system(), path_);
  const Bytes size = log.size();
  Bytes whole = size;  // up to and including the last newline
  for (std::size_t found = std::string::npos; whole > 0 && found == std::string::npos;) {
    std::string block(std::min<Bytes>(whole, 64_KiB), '\0');
    log.read_all(std::as_writable_bytes(std::span(block)), whole - block.size());
    found = block.rfind('\n');
    whole -= block.size();
    if (found != std::string::npos) whole += found + 1;
  }
  if (whole != size && ::ftruncate(file_, static_cast<off_t>(whole)) != 0) {
    throw IoError("cannot shorten", path_, errno);
  }
}

EventLog::~EventLog() { ::close(file_); }

void EventLog::add(const Json& event) {
  run_.apply(event);
  pending_ += event_line(event);
}

/// Stops a run early whose folder was removed or moved: its results would be lost.
void EventLog::require_in_place() const {
  struct stat ours {
  }, there{};
  if (::fstat(file_, &ours) == 0 && !S_ISREG(ours.st_mode)) return;
  const bool found = ::stat(path_.c_str(), &there) == 0;
  if (found && there.st_ino == ours.st_ino && there.st_dev == ours.st_dev) return;
  throw Error(
      fmt::format("{} was removed or replaced during the run, so the run stops. If its "
                  "folder still exists, continue with 'spillway resume {}'",
                  path_.string(), path_.parent_path().string()));
}

void EventLog::flush() {
  if (pending_.empty()) return;
  require_in_place();
  write_all(file_, pending_, path_);
  pending_.clear();
}

void EventLog::sync() {
  flush();
  if (::fsync(file_) != 0) throw IoError("cannot sync", path_, errno);
  posix_file_system().sync_folder(fs::absolute(path_).parent_path());
}

}  // namespace spillway
