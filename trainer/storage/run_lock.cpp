#include "trainer/storage/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr const char* kFile = "lock";

/// A lock of the whole file, owned by the open file description, not by the process.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// "process 4711"; the holder may not have written its number yet.
std::string process_in(int file) {
  std::array<char, 20> text{};
  const auto size = ::pread(file, text.data(), text.size(), 0);
  std::string digits(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  digits.resize(std::min(digits.find_first_not_of("0123456789"), digits.size()));
  return digits.empty() ? "another process" : "process " + digits;
}

bool is_regular(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

/// Returns errno.
int lock(int file) {
  struct flock wanted = whole_file(F_WRLCK);
  while (::fcntl(file, F_OFD_SETLK, &wanted) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// Returns errno. The file does not become empty meanwhile, so a process that is killed here leaves
/// the mark of a crash.
int write_own_number(int file) {
  const std::string text = fmt::format("{}\n", ::getpid());
  const auto written = ::pwrite(file, text.data(), text.size(), 0);
  if (written < 0) return errno;
  if (static_cast<std::size_t>(written) != text.size()) return ENOSPC;
  const bool is_done = ::ftruncate(file, written) == 0 && ::fdatasync(file) == 0;
  return is_done ? 0 : errno;
}

/// Locks the file and writes the process id into it. Returns whether it still has another one.
/// Throws InUse, IoError.
bool claim(int file, const std::filesystem::path& path) {
  if (!is_regular(file)) throw IoError("cannot lock", path, EINVAL);
  const int code = lock(file);
  if (code == EAGAIN || code == EACCES) throw InUse(path.parent_path(), process_in(file));
  if (code != 0) throw IoError("cannot lock", path, code);
  struct stat status {};
  const bool has_number = ::fstat(file, &status) == 0 && status.st_size > 0;
  if (const int problem = write_own_number(file); problem != 0) {
    throw IoError("cannot write", path, problem);
  }
  return has_number;
}

}  // namespace

RunLock::RunLock(std::filesystem::path folder) : folder_(std::move(folder)) {
  const auto path = folder_ / kFile;
  // Never follow a link: its target would be truncated.
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  file_ = ::open(path.c_str(), kFlags, 0666);
  if (file_ < 0) throw IoError("cannot open", path, errno);
  try {
    follows_crash_ = claim(file_, path);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

RunLock::RunLock(RunLock&& other) noexcept
    : folder_(std::move(other.folder_)),
      file_(std::exchange(other.file_, -1)),
      follows_crash_(other.follows_crash_),
      keeps_mark_(other.keeps_mark_) {}

RunLock::~RunLock() {
  if (file_ < 0) return;
  if (!keeps_mark_) end_in_order();
  ::close(file_);
}

/// If that fails, it looks like a crash.
void RunLock::end_in_order() const { [[maybe_unused]] const int code = ::ftruncate(file_, 0); }

std::optional<std::string> holder_of(const std::filesystem::path& folder) {
  const int file = ::open((folder / kFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  struct flock other = whole_file(F_WRLCK);
  const bool is_held = ::fcntl(file, F_OFD_GETLK, &other) == 0 && other.l_type != F_UNLCK;
  std::optional<std::string> holder;
  if (is_held) holder = process_in(file);
  ::close(file);
  return holder;
}

}  // namespace spillway
