#include "apps/event_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "core/file_system.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& problem) { throw ConfigError("", 0, problem); }

/// The file, where `folder` has one.
std::ifstream open_log(const fs::path& folder) {
  const std::string name = "'" + folder.string() + "' ";
  const std::string remedy = "; name the folder of a run, such as runs/NAME";
  std::error_code error;
  if (!fs::exists(folder, error)) fail(name + "does not exist" + remedy);
  if (!fs::is_directory(folder, error)) fail(name + "is a file" + remedy);
  std::ifstream file;
  if (fs::is_regular_file(folder / kEventFile, error))
    file.open(folder / kEventFile, std::ios::binary);
  if (!file.is_open()) fail(name + "holds no run that can be read: no file " + kEventFile + remedy);
  return file;
}

}  // namespace

EventLog::EventLog(fs::path path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) throw IoError("cannot create", path_, errno);
  // Where locks are not supported, a run that goes on looks like one that was broken off.
  ::flock(file_, LOCK_EX | LOCK_NB);
}

EventLog::EventLog(fs::path path, RunLog run) : path_(std::move(path)), run_(std::move(run)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (file_ < 0) throw IoError("cannot open", path_, errno);
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file_);
    throw Error("'" + path_.parent_path().string() +
                "' holds a run that goes on; wait for its end");
  }
  drop_torn_line();
}

void EventLog::drop_torn_line() {
  std::ifstream in(path_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t whole = text.rfind('\n') + 1;
  if (whole != text.size() && ::ftruncate(file_, static_cast<off_t>(whole)) != 0) {
    throw IoError("cannot shorten", path_, errno);
  }
}

EventLog::~EventLog() { ::close(file_); }

void EventLog::add(const Json& event) {
  run_.apply(event);
  pending_ += to_line(event);
}

void EventLog::flush() {
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

bool is_live(const fs::path& file) {
  const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (handle < 0) return false;
  const bool locked = ::flock(handle, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(handle);
  return locked;
}

void require_run(const fs::path& folder) { open_log(folder); }

bool has_begun(const fs::path& folder) {
  std::ifstream file(folder / kEventFile, std::ios::binary);
  std::string line;
  return std::getline(file, line) && !file.eof();
}

RunLog read_run(const fs::path& folder) {
  auto file = open_log(folder);
  RunLog run;
  std::string line;
  // At the end of the file a line has lost its end.
  for (int number = 1; std::getline(file, line) && !file.eof(); ++number) {
    try {
      run.apply(Json::parse(line));
    } catch (const std::exception& error) {
      const bool is_json = Json::accept(line);
      fail((folder / kEventFile).string() + ", line " + std::to_string(number) + ": " +
           (is_json ? error.what() : "is no JSON") + "; the log is damaged, or of another version");
    }
  }
  if (run.trials.empty())
    fail((folder / kEventFile).string() + " has no whole line; the run was broken off as it began");
  return run;
}

}  // namespace spillway
