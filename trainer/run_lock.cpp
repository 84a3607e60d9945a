#include "trainer/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "core/error.h"

namespace spillway {
namespace {

/// "process 4711"; the holder may not have written its number yet.
std::string holder(int file) {
  std::array<char, 20> text{};
  const auto size = ::pread(file, text.data(), text.size(), 0);
  std::string digits(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  digits.resize(std::min(digits.find_first_not_of("0123456789"), digits.size()));
  return digits.empty() ? "another process" : "process " + digits;
}

/// Returns errno.
int lock(int file) {
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// Returns errno.
int write_own_number(int file) {
  const std::string text = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file, 0) != 0) return errno;
  const auto written = ::pwrite(file, text.data(), text.size(), 0);
  if (written < 0) return errno;
  return static_cast<std::size_t>(written) == text.size() ? 0 : ENOSPC;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) {
  const auto path = folder / "lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw IoError("cannot open", path, errno);
  int code = lock(file_);
  const std::string other = code == EWOULDBLOCK ? holder(file_) : "";
  if (code == 0) code = write_own_number(file_);
  if (code == 0) return;
  ::close(file_);
  if (!other.empty())
    throw Error("'" + folder.string() + "' is in use by " + other +
                "; wait for its end, stop it, or choose another folder");
  throw IoError("cannot lock", path, code);
}

RunLock::~RunLock() { ::close(file_); }

}  // namespace spillway
