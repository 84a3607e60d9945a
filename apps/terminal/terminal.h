#pragma once

#include <optional>
#include <string_view>

namespace spillway {

struct TerminalSize {
  int columns = 80, rows = 24;
};

/// Of the terminal behind a descriptor; none where there is none (also for -1) on which a cursor
/// could be moved.
std::optional<TerminalSize> terminal_size(int file);

/// Writes to the terminal as it is, control characters included. A terminal that is gone takes
/// nothing.
void write_to_terminal(int file, std::string_view text);

}  // namespace spillway
