#include "apps/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "runs/text/table.h"

namespace spillway {

std::optional<TerminalSize> terminal_size(int file) {
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || std::string_view(kind).empty() || std::string_view(kind) == "dumb" ||
      ::isatty(file) == 0)
    return std::nullopt;
  TerminalSize size;
  winsize window{};
  if (::ioctl(file, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0)
    size = {.columns = window.ws_col, .rows = window.ws_row};
  return size;
}

void fit_tables(std::ostream& out, int file) {
  if (const auto size = terminal_size(file))
    set_table_width(out, static_cast<std::size_t>(size->columns));
}

void write_to_terminal(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t num_written = ::write(file, text.data(), text.size());
    if (num_written < 0 && errno == EINTR) continue;
    if (num_written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(num_written));
  }
}

}  // namespace spillway
