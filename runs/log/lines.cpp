#include "runs/log/lines.h"

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

}  // namespace spillway
