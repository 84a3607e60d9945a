#pragma once

#include <optional>

namespace spillway {

struct TerminalSize {
  int columns = 80, rows = 24;
};

/// Of the terminal behind a descriptor; none where there is none (also for -1) on which a cursor
/// could be moved.
std::optional<TerminalSize> terminal_size(int file);

}  // namespace spillway
