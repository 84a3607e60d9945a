#include "runs/log/event_log.h"

#include <fcntl.h>
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
#include "spillway/error.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& problem) { throw ConfigError("", 0, problem); }

/// {"event": "repaired"}: lines before it were damaged and left out, among them so many events, the
/// last of which had this sequence.
Json repaired_event(std::uint64_t sequence, std::uint64_t num_lost) {
  return {{"event", kRepairedEvent}, {"sequence", sequence}, {"events", num_lost}};
}

/// Takes in the lines of a log one after the other. Lines that cannot be used are counted; where
/// they stood, a reader of the kept lines finds a `repaired` event.
class LogReader {
 public:
  using Keep = std::function<void(std::string_view line)>;
  /// `keep`: called with each line that is used, without its end.
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
      return leave_out(error.what());
    } catch (const Json::exception&) {
      return leave_out("is no event");
    }
    keep_(line);
  }

 private:
  void leave_out(const std::string& problem) {
    into_.damage.push_back("line " + std::to_string(number_) + " " + problem);
    ++num_left_out_;
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

  /// Over the events that are missing before this one.
  void bridge(const Json& event) {
    const auto found = event.find("sequence");
    if (found == event.end() || !found->is_number_unsigned()) return;
    const auto sequence = found->get<std::uint64_t>();
    const bool is_repaired = event.value("event", "") == kRepairedEvent;
    const std::uint64_t next = into_.run.sequence + 1;
    const bool lost_restart = into_.run.actual && sequence == next;
    if (is_repaired || into_.run.trials.empty()) return;
    if (sequence <= next && !lost_restart) return;
    if (num_left_out_ == 0 && !lost_restart) {
      into_.damage.push_back("events " + std::to_string(next) + " to " +
                             std::to_string(sequence - 1) + " are missing before line " +
                             std::to_string(number_));
    }
    const Json repaired = repaired_event(sequence - 1, sequence - next);
    into_.run.apply(repaired);
    std::string line = event_line(repaired);
    line.pop_back();
    keep_(line);
    num_left_out_ = 0;
  }

  LoggedRun& into_;
  const Keep keep_;
  int number_ = 0;
  std::uint64_t num_left_out_ = 0;  ///< since the last line that was used
};

/// Nothing where the folder has none.
std::optional<LoggedRun> read_file(const fs::path& file, const LogReader::Keep& keep) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error))) return std::nullopt;
  if (!fs::is_regular_file(fs::symlink_status(file, error)))
    fail(file.string() + " is not a regular file; remove it");
  std::ifstream in(file, std::ios::binary);
  if (!in.is_open()) throw IoError("cannot open", file, errno);
  LoggedRun logged;
  LogReader reader(logged, keep);
  std::string line;
  // At the end of the file a line has lost its end.
  while (std::getline(in, line) && !in.eof()) reader.take(line);
  return logged;
}

}  // namespace

void require_folder(const fs::path& folder) {
  const std::string name = "'" + folder.string() + "' ";
  const std::string remedy = "; name the folder of a run, such as runs/NAME";
  std::error_code error;
  if (!fs::exists(folder, error)) fail(name + "does not exist" + remedy);
  if (!fs::is_directory(folder, error)) fail(name + "is a file" + remedy);
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
    fail("'" + folder.string() + "' holds no run that can be read: it has no file " + kEventFile +
         "; name the folder of a run, such as runs/NAME");
  }
  if (logged.damage.empty()) fail(file + " has no whole line; the run was broken off as it began");
  fail(file + ": " + logged.damage.front() +
       ", and without it nothing is known of the trials; 'spillway resume " + folder.string() +
       "' rebuilds the log from the checkpoints");
}

EventLog::EventLog(fs::path path) : path_(std::move(path)) { open(O_CREAT | O_TRUNC); }

EventLog::EventLog(fs::path path, LoggedRun before)
    : path_(std::move(path)), run_(std::move(before.run)) {
  if (!before.damage.empty()) {
    AtomicFile repaired(path_);
    read_file(path_, [&](std::string_view line) {
      repaired.write(line);
      repaired.write("\n");
    });
    repaired.commit();
  }
  open(0);
  drop_torn_line();
}

void EventLog::open(int flags) {
  file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
  if (file_ < 0) throw IoError("cannot open", path_, errno);
}

void EventLog::drop_torn_line() {
  const OpenFile log = OpenFile::open(posix_file_system(), path_);
  const Bytes size = log.size();
  Bytes whole = size;  // behind the last end of a line
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

/// Who removes or moves the folder of a run takes its results: better said now than at the end.
void EventLog::require_in_place() const {
  struct stat ours {
  }, there{};
  if (::fstat(file_, &ours) == 0 && !S_ISREG(ours.st_mode)) return;
  const bool found = ::stat(path_.c_str(), &there) == 0;
  if (found && there.st_ino == ours.st_ino && there.st_dev == ours.st_dev) return;
  throw Error(path_.string() +
              " was removed or replaced while the run wrote it; the run stops. If its folder is "
              "still there, 'spillway resume " +
              path_.parent_path().string() + "' goes on");
}

void EventLog::flush() {
  if (pending_.empty()) return;
  require_in_place();
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const auto written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw IoError("cannot write", path_, errno);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  pending_.clear();
}

void EventLog::sync() {
  flush();
  if (::fsync(file_) != 0) throw IoError("cannot sync", path_, errno);
  posix_file_system().sync_folder(fs::absolute(path_).parent_path());
}

}  // namespace spillway
