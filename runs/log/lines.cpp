#include "runs/log/lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "spillway/error.h"

namespace spillway {

void write_all(int file, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const auto written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw IoError("cannot write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void append_to(const std::filesystem::path& path, std::string_view text, int flags) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
  if (file < 0) throw IoError("cannot open", path, errno);
  try {
    write_all(file, text, path);
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);
}

}  // namespace spillway
